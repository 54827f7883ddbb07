"""Rollouts and pairs as chat messages, and as exact tokens: the formats that most trainers read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_data.actors import Actor
from gymmesh_data.conversation import ChatStyle, Conversation, to_last_answer
from gymmesh_data.exports.format import TEMPLATE_STYLE, Format, PairFacts, Taken, TokenPlace
from gymmesh_data.pairs import Pair
from gymmesh_data.rollout import Json, StoredRollout
from gymmesh_responses import dumps_clean

_OPENAI_STYLE: Final = ChatStyle(keep_reasoning=False, developer_role=True)


def messages(taken: Taken) -> Iterator[Json]:
    """A rollout, judged or not."""
    said = taken.said
    record: Json = {
        "prompt": said.prompt,
        "messages": said.messages,
        "tools": said.tools,
        "reward": taken.rollout.reward,
        "metadata": metadata_of(taken.rollout, said),
    }
    record |= _samples(taken)
    if actors := [_actor(actor, spoken) for actor, spoken in taken.of_actors()]:
        record["actors"] = actors
    yield record


def _samples(taken: Taken) -> Json:
    samples = taken.samples()
    return {"samples": samples} if samples else {}


def _actor(actor: Actor, spoken: list[Taken]) -> Json:
    """An actor beside the root agent; `prompt` is what it had read before it first spoke."""
    return {
        "name": actor.name,
        "reward": actor.reward,
        "trainable": actor.trainable,
        "conversations": [
            {"prompt": one.said.prompt, "messages": one.said.messages}
            | ({"tools": one.said.tools} if one.said.tools else {})
            | _samples(one)
            for one in spoken
        ],
    }


def metadata_of(rollout: StoredRollout, said: Conversation) -> Json:
    """The keys by which trainers filter and group. Rows of other programs have fewer keys."""
    told, tags = rollout.metadata, rollout.value("tags")
    steps, used = told.get("steps_taken"), told.get("tools_used")
    answers = said.messages[said.prompt_length :] if steps is None or used is None else []
    if steps is None:
        steps = sum(one["role"] == "assistant" for one in answers)
    if used is None:
        calls = [call for one in answers for call in one.get("tool_calls", ())]
        used = list(dict.fromkeys(call["function"]["name"] for call in calls))
    metadata: Json = {
        "task_id": rollout.task_id,
        "rollout_id": rollout.rollout_id,
        "repeat_index": rollout.repeat_index,
        "environment": rollout.environment,
        "stop_reason": rollout.stop_reason,
        "steps_taken": steps,
        "tools_used": used,
        "verified": rollout.reward is not None,
    }
    if isinstance(told.get("tool_outcomes"), list):
        metadata["tool_outcomes"] = told["tool_outcomes"]
    if "weights_versions" in told:
        metadata["weights_versions"] = told["weights_versions"]
    if isinstance(tags, dict):
        metadata["tags"] = tags
    return metadata


def sft(taken: Taken) -> Iterator[Json]:
    """A demonstration for TRL's SFTTrainer."""
    yield {"messages": to_last_answer(taken.said)} | tools_as_text(taken.said.tools)


def tokens(taken: Taken) -> Iterator[Json]:
    """The training samples of a rollout. Raises NoTokens."""
    rollout = taken.rollout
    samples = taken.exact_samples()
    versions = rollout.metadata.get("weights_versions", [])
    for number, sample in enumerate(samples):
        yield {
            "input_ids": sample.input_ids,
            "labels": sample.labels,
            "mask": sample.mask,
            "logprobs": sample.logprobs,
            "reward": rollout.reward,
            "task_id": rollout.task_id,
            # Rows of other programs have no id; their place tells their samples apart.
            "rollout_id": rollout.rollout_id or rollout.where,
            "sample": number,
            "samples": len(samples),
            "weights_versions": versions,
        }


def openai(taken: Taken) -> Iterator[Json]:
    """A demonstration for OpenAI's fine-tuning."""
    record: Json = {"messages": to_last_answer(taken.said)}
    if taken.said.tools:
        record["tools"] = taken.said.tools
        params = taken.rollout.request.params
        record["parallel_tool_calls"] = params.get("parallel_tool_calls") is not False
    yield record


def dpo(pair: Pair, facts: PairFacts) -> Json:
    """A pair for TRL's DPOTrainer."""
    return {
        "prompt": pair.prompt,
        "chosen": pair.chosen,
        "rejected": pair.rejected,
        **tools_as_text(facts.tools),
        "task_id": facts.task_id,
        "chosen_reward": facts.rewards[0],
        "rejected_reward": facts.rewards[1],
        "chosen_rollout_id": facts.rollout_ids[0],
        "rejected_rollout_id": facts.rollout_ids[1],
    }


def openai_dpo(pair: Pair, facts: PairFacts) -> Json:
    """A pair for OpenAI's fine-tuning."""
    given: Json = {"messages": pair.prompt}
    if facts.tools:
        given["tools"] = facts.tools
    return {"input": given, "preferred_output": pair.chosen, "non_preferred_output": pair.rejected}


def tools_as_text(tools: list[Json]) -> dict[str, Any]:
    """Tools as JSON text, because a table of Arrow unites the schemas of all rows and fills the
    gaps with nulls.
    """
    return {"tools": as_text(tools)} if tools else {}


def as_text(value: Any) -> str:
    """A JSON value as JSON text. Values read from JSON have no NaN, so NaN is not checked."""
    return dumps_clean(value).decode("utf-8", "surrogatepass")


MADE: Final = (
    Format(
        name="messages",
        about="every rollout: prompt, messages, tools, reward, metadata, token ids",
        of_rollout=messages,
        tokens=TokenPlace.SAMPLES,
        actors=True,
    ),
    Format(
        name="tokens",
        about="exact token ids: input_ids, labels, mask, logprobs, reward",
        of_rollout=tokens,
        tokens=TokenPlace.ONLY,
    ),
    Format(
        name="sft",
        about="demonstrations for TRL's SFTTrainer",
        style=TEMPLATE_STYLE,
        demonstrations=True,
        of_rollout=sft,
    ),
    Format(
        name="dpo",
        about="preference pairs for TRL's DPOTrainer",
        style=TEMPLATE_STYLE,
        of_pair=dpo,
    ),
    Format(
        name="openai",
        about="demonstrations for OpenAI's fine-tuning",
        style=_OPENAI_STYLE,
        demonstrations=True,
        of_rollout=openai,
    ),
    Format(
        name="openai-dpo",
        about="preference pairs for OpenAI's fine-tuning",
        style=_OPENAI_STYLE,
        of_pair=openai_dpo,
    ),
)
"""The formats of this module."""
