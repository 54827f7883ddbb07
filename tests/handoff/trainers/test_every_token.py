"""Each hook trains every token that the policy sampled, in its trainer's own hands, or refuses: for
the chat templates of model families, those that append to the history and those that rewrite it.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import trl
from skyrl.train.generators.base import TrajectoryID
from skyrl.train.utils.trainer_utils import validate_generator_output

from gymmesh_client import UserError
from gymmesh_trainers import Generation, SamplingParams
from gymmesh_trainers.skyrl import GymmeshGenerator
from gymmesh_trainers.trl import TrlRollouts

pytestmark = pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")

ROOT: Final = Path(__file__).parents[3]
PLACE: Final = f"{ROOT / 'tests' / 'unit' / 'trainers' / 'environments.py'}:Talk"
TASK: Final = {"task_id": "t", "prompt": "Count."}
CALLS: Final = 6
# Families' templates, as TRL has them, with the token that ends an answer.
FAMILIES: Final = {
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "qwen3_6": "<|im_end|>",
    "glm4moe": "<|user|>",
    "deepseek_r1_distill": "<｜end▁of▁sentence｜>",
    "llama3_1": "<|eot_id|>",
    "gptoss": "<|return|>",
    "phi3": "<|end|>",
    "nemotron_3_nano": "<|im_end|>",
}


class Policy:
    """Reasons and counts, six times."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.sampled: list[tuple[list[int], list[int]]] = []

    def sample(self, prompt: list[int]) -> list[int]:
        word = ("one", "two", "three", "four", "five", "six")[len(self.sampled)]
        said = f"<think>\nNext is {word}.\n</think>\n\n{word}"
        ids = [*self.tokenizer.encode(said, add_special_tokens=False), self.tokenizer.eos_token_id]
        self.sampled.append((prompt, ids))
        return ids

    @property
    def total(self) -> int:
        return sum(len(ids) for _, ids in self.sampled)

    @property
    def appends(self) -> bool:
        """Whether each prompt goes on from all tokens before it."""
        return all(
            later[: len(prompt) + len(ids)] == prompt + ids
            for (prompt, ids), (later, _) in pairwise(self.sampled)
        )


@pytest.fixture(params=FAMILIES)
def policy(request: pytest.FixtureRequest, tokenizer: Any) -> Policy:
    made = copy.deepcopy(tokenizer)
    folder = Path(trl.__file__).parent / "chat_templates"
    made.chat_template = (folder / f"{request.param}.jinja").read_text(encoding="utf-8")
    made.add_special_tokens({"eos_token": FAMILIES[request.param]})
    return Policy(made)


def by_trl(policy: Policy) -> int:
    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        ids = policy.sample(prompt)
        return Generation(ids, [-0.5] * len(ids))

    args = SimpleNamespace(
        temperature=1.0, top_p=1.0, top_k=0, min_p=None, repetition_penalty=1.0,
        generation_kwargs=None, max_completion_length=4096, use_vllm=False,
    )  # fmt: skip
    trainer = SimpleNamespace(
        args=args,
        state=SimpleNamespace(global_step=0),
        processing_class=policy.tokenizer,
        accelerator=SimpleNamespace(process_index=0),
    )
    with TrlRollouts(PLACE, [TASK], engine=engine) as rollouts:
        found = rollouts([rollouts.rows[0]["prompt"]], trainer)
    assert found["gymmesh_reward"] == [1.0]
    return sum(found["env_mask"][0])


def by_skyrl(policy: Policy, *, step_wise: bool) -> int:
    class Client:
        async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
            ids = policy.sample(batch["prompt_token_ids"][0])
            logprobs = [[-0.5] * len(ids)]
            return {
                "response_ids": [ids], "stop_reasons": ["stop"], "response_logprobs": logprobs
            }  # fmt: skip

    async def run() -> dict[str, Any]:
        given = {
            "prompts": [[{"role": "user", "content": "Add."}]],
            "env_extras": [{"task": json.dumps(TASK)}],
            "sampling_params": {},
            "trajectory_ids": [TrajectoryID("u", 0)],
        }
        hook = GymmeshGenerator(PLACE, policy.tokenizer, Client(), step_wise=step_wise)
        async with hook as generator:
            return await generator.generate(given)

    found = asyncio.run(run())
    validate_generator_output(1, found, step_wise=step_wise)
    assert set(found["rewards"]) == {1.0}
    return sum(map(sum, found["loss_masks"]))


class Server:
    """veRL's server manager, as far as it is called."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **asked: Any) -> Any:
        self.asked.append(asked)
        ids = self.policy.sample(asked["prompt_ids"])
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"global_steps": 4}
        )


def by_verl(policy: Policy) -> int:
    from tests.handoff.trainers.verl_v1 import run_prompt

    row = {"extra_info": {"task": json.dumps(TASK)}}
    queue = run_prompt(policy.tokenizer, Server(policy), row, environment=PLACE)
    if queue.tags["u"]["status"] != "finished":
        raise UserError("the group failed")
    for fields in queue.fields.values():
        assert float(fields["rm_scores"].sum()) == 1.0
        assert len(fields["rollout_log_probs"]) == len(fields["loss_mask"])
    return int(sum(fields["loss_mask"].sum() for fields in queue.fields.values()))


def by_openrlhf(policy: Policy) -> int:
    from gymmesh_trainers.openrlhf import executor

    class Engine:
        async def generate(self, prompt: list[int], params: Any, multi_modal_data: Any) -> Any:
            ids = policy.sample(prompt)
            logprobs = [{one: SimpleNamespace(logprob=-0.5)} for one in ids]
            output = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason="stop")
            return SimpleNamespace(outputs=[output])

    async def run() -> dict[str, Any]:
        params = SimpleNamespace(max_tokens=None, logprobs=1)
        async with executor(PLACE)() as made:
            label = json.dumps(TASK)
            found: dict[str, Any] = await made.execute(
                "", label, params, 8192, policy.tokenizer, Engine()
            )
            return found

    found = asyncio.run(run())
    assert found["reward"] == 1.0
    return sum(end - begin for begin, end in found["action_ranges"])


def by_skyrl_step_wise(policy: Policy) -> int:
    return by_skyrl(policy, step_wise=True)


def by_skyrl_in_one(policy: Policy) -> int:
    return by_skyrl(policy, step_wise=False)


@pytest.mark.parametrize("hook", [by_verl, by_skyrl_step_wise], ids=lambda hook: hook.__name__)
def test_a_trainer_that_takes_every_sample_trains_every_token(
    hook: Callable[[Policy], int], policy: Policy
) -> None:
    assert hook(policy) == policy.total > 0
    assert len(policy.sampled) == CALLS


@pytest.mark.parametrize(
    "hook", [by_trl, by_skyrl_in_one, by_openrlhf], ids=lambda hook: hook.__name__
)
def test_a_trainer_with_room_for_one_trains_every_token_or_the_hook_refuses(
    hook: Callable[[Policy], int], policy: Policy
) -> None:
    try:
        trained = hook(policy)
    except UserError as error:
        refusal = str(error)
    else:
        assert trained == policy.total
        return
    assert not policy.appends
    assert f"of its {policy.total} sampled tokens" in refusal


def test_verl_replaces_what_failed_and_samples_each_repeat_by_a_seed_of_its_own(
    tokenizer: Any,
) -> None:
    from tests.handoff.trainers.verl_v1 import run_prompt

    class Breaks(Server):
        async def generate(self, **asked: Any) -> Any:
            self.asked.append(asked)
            if len(self.asked) == 2:
                raise RuntimeError("the server is gone")
            ids = [*tokenizer.encode("6"), tokenizer.eos_token_id]
            return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={})

    server = Breaks(Policy(tokenizer))
    row = {"extra_info": {"task": json.dumps({**TASK, "seed": 7})}}
    settings = {"max_attempts": 1}
    queue = run_prompt(tokenizer, server, row, repeats=3, environment=PLACE, settings=settings)
    assert queue.tags.pop("u")["status"] == "failure"  # the group, whose rest is kept
    assert {tag["status"] for tag in queue.tags.values()} == {"success"}
    assert len(queue.fields) == 2
    # Calls that begin a conversation: the only ones with all the room.
    first = [one["sampling_params"] for one in server.asked]
    seeds = [one["seed"] for one in first if one["max_tokens"] == 4096]
    assert len(seeds) == len(set(seeds)) == 3
