"""Tasks, demonstrations and pairs as veRL, OpenRLHF, NeMo RL and TRL's online trainers read them.

A task is one record, whatever the number of its rollouts: its prompt, the whole task as JSON text
under `task` (so that a hook can run it, and no table of Arrow mixes the keys of several tasks), and
how its rollouts fared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from gymmesh_data.conversation import to_last_answer
from gymmesh_data.exports.arrow import EXTRA, PARQUET_SUFFIXES, pack_verl
from gymmesh_data.exports.format import Format, PairFacts, Taken, TaskFacts
from gymmesh_data.exports.formats.chat import as_text, tools_as_text
from gymmesh_data.pairs import Pair
from gymmesh_data.rollout import Json
from gymmesh_data.tasks import answer_of, task_of

_UNNAMED: Final = "gymmesh"


def kept_of_task(taken: Taken) -> Json:
    """The state from which the record of a task is made."""
    return {"prompt": taken.said.prompt, "tools": taken.said.tools, "task": task_of(taken.rollout)}


def kept_without_tools(taken: Taken) -> Json:
    """Like `kept_of_task`, for trainers that configure tools themselves."""
    if taken.said.tools:
        taken.said.losses["tool definitions of tasks (this trainer configures tools itself)"] += 1
    return kept_of_task(taken)


def verl_task(kept: Json, facts: TaskFacts) -> Json:
    """A row of veRL's RLHFDataset."""
    task = kept["task"]
    environment = task.get("environment") or _UNNAMED
    return {
        "data_source": environment,
        "prompt": kept["prompt"],
        "ability": environment,
        "reward_model": {"style": "rule", "ground_truth": _truth(task)},
        "extra_info": {
            "index": facts.number,
            "split": "train",
            "task_id": task["task_id"],
            "task": as_text(task),
            "rollouts": facts.rollouts,
            "mean_reward": facts.mean_reward,
        },
        "agent_name": facts.agent or "gymmesh",
    }


def nemo_rl_task(kept: Json, facts: TaskFacts) -> Json:
    """A row of NeMo RL's and NeMo Gym's task files, for the agent `gymmesh_agent`."""
    task: Json = dict(kept["task"])
    params = dict(task["responses_create_params"])
    if isinstance(params.get("input"), str):
        params["input"] = [{"role": "user", "content": params["input"]}]
    # There `agent_ref` says which agent; our keys of this meaning stay inside the task.
    return {
        **task,
        "responses_create_params": params,
        "agent_ref": {"type": "responses_api_agents", "name": facts.agent or "gymmesh_agent"},
    }


def openrlhf_task(kept: Json, facts: TaskFacts) -> Json:
    """A row of OpenRLHF's PromptDataset: input_key input, label_key label. The label is the task,
    which the hook `gymmesh_trainers.openrlhf` runs.
    """
    task = kept["task"]
    return {
        "input": kept["prompt"],
        "label": as_text(task),
        "task_id": task["task_id"],
        "datasource": task.get("environment") or _UNNAMED,
        "rollouts": facts.rollouts,
        "mean_reward": facts.mean_reward,
    }


def trl_task(kept: Json, facts: TaskFacts) -> Json:
    """A row for TRL's GRPOTrainer; the columns beside `prompt` reach its rewards and hooks."""
    task = kept["task"]
    return {
        "prompt": kept["prompt"],
        **tools_as_text(kept["tools"]),
        "task_id": task["task_id"],
        "environment": task.get("environment") or _UNNAMED,
        "ground_truth": _truth(task),
        "task": as_text(task),
        "rollouts": facts.rollouts,
        "mean_reward": facts.mean_reward,
    }


def verl_sft(taken: Taken) -> Iterator[Json]:
    """A row of veRL's MultiTurnSFTDataset; `verl_table` makes the Parquet file of them."""
    said = taken.said
    if any(isinstance(one["content"], list) for one in said.messages):
        said.losses["rollouts with images (this table has no column for them)"] += 1
        return
    yield {"messages": to_last_answer(said), "tools": said.tools or None}


def openrlhf_sft(taken: Taken) -> Iterator[Json]:
    """A row of OpenRLHF's SFTDataset: input_key input, no output_key; every answer is trained with
    `--data.multiturn`, else the last one.
    """
    said = taken.said
    if said.tools:
        said.losses["tools (OpenRLHF does not pass them to its chat templates)"] += 1
    yield {"input": to_last_answer(said)}


def openrlhf_dpo(pair: Pair, facts: PairFacts) -> Json:
    """A row of OpenRLHF's RewardDataset: prompt_key prompt, chosen_key, rejected_key; and margin,
    which its reward models use.
    """
    return {
        "prompt": pair.prompt,
        "chosen": pair.chosen,
        "rejected": pair.rejected,
        # Apart by more than a float can hold, they are as far apart as it can say.
        "margin": min(facts.rewards[0] - facts.rewards[1], sys.float_info.max),
        "task_id": facts.task_id,
        "chosen_rollout_id": facts.rollout_ids[0],
        "rejected_rollout_id": facts.rollout_ids[1],
    }


def _truth(task: Json) -> str:
    answer = answer_of(task)
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else as_text(answer)


MADE: Final = (
    Format(name="trl", about="tasks for TRL's GRPOTrainer", of_task=(kept_of_task, trl_task)),
    Format(name="verl", about="tasks for veRL", of_task=(kept_without_tools, verl_task)),
    Format(
        name="verl-sft",
        about="demonstrations for veRL, as Parquet",
        demonstrations=True,
        of_rollout=verl_sft,
        pack=pack_verl,
        suffixes=PARQUET_SUFFIXES,
        needs=EXTRA,
    ),
    Format(
        name="nemo-rl",
        about="tasks for NeMo RL and NeMo Gym",
        of_task=(kept_of_task, nemo_rl_task),
    ),
    Format(
        name="openrlhf", about="tasks for OpenRLHF", of_task=(kept_without_tools, openrlhf_task)
    ),
    Format(
        name="openrlhf-sft",
        about="demonstrations for OpenRLHF",
        demonstrations=True,
        of_rollout=openrlhf_sft,
    ),
    Format(
        name="openrlhf-dpo",
        about="preference pairs for OpenRLHF",
        of_pair=openrlhf_dpo,
    ),
)
"""The formats of this module."""
