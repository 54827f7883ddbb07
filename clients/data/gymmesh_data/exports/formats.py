"""The formats by name, and what a record of each is made of.

| name       | a record is           | format of                                              |
|------------|-----------------------|--------------------------------------------------------|
| messages   | a rollout             | gymmesh: prompt, messages, reward, metadata            |
| sft        | a demonstration       | TRL's SFTTrainer: `messages`, `tools`                  |
| tokens     | a training sample     | TRL's SFTTrainer: `input_ids`, `labels`; and the rest  |
| dpo        | a pair                | TRL's DPOTrainer: `prompt`, `chosen`, `rejected`       |
| openai     | a demonstration       | OpenAI's supervised fine-tuning                        |
| openai-dpo | a pair                | OpenAI's preference fine-tuning                        |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_data.conversation import ChatStyle, Conversation
from gymmesh_data.pairs import Pair
from gymmesh_data.rollout import Json, StoredRollout
from gymmesh_data.samples import NoTokens, samples_of
from gymmesh_responses import dumps

OfRollout = Callable[[StoredRollout, Conversation], Iterator[Json]]
OfPair = Callable[[Pair, "PairFacts"], Json]


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What is known of a pair beside its messages. ids and rewards: of the better one first."""

    task_id: str
    rollout_ids: tuple[str, str]
    rewards: tuple[float, float]
    tools: list[Json]


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        summary: what it is, in one line.
        style: how its messages are written.
        demonstrations: whether only rollouts worth imitating belong in it.
        of_rollout: the records of a rollout; None for a format of pairs. Raises NoTokens.
        of_pair: the record of a pair; None for a format of rollouts.
        has_tokens: whether it may have token ids beside its text.
    """

    summary: str
    style: ChatStyle = field(default_factory=ChatStyle)
    demonstrations: bool = False
    of_rollout: OfRollout | None = None
    of_pair: OfPair | None = None
    has_tokens: bool = False


def _messages(rollout: StoredRollout, said: Conversation) -> Iterator[Json]:
    yield {
        "prompt": said.prompt,
        "messages": said.messages,
        "tools": said.tools,
        "reward": rollout.reward,
        "metadata": _metadata(rollout, said),
    }


def _messages_with_tokens(rollout: StoredRollout, said: Conversation) -> Iterator[Json]:
    for record in _messages(rollout, said):
        try:
            samples = samples_of(rollout)
        except NoTokens:
            samples = []
        if samples:
            record["samples"] = [
                {"input_ids": one.input_ids, "mask": one.mask, "logprobs": one.logprobs}
                for one in samples
            ]
        yield record


def _metadata(rollout: StoredRollout, said: Conversation) -> Json:
    """What trainers filter and group by. A row of another program says less of itself."""
    told, row = rollout.metadata, rollout.row
    answers = said.messages[said.prompt_length :]
    calls = [call for one in answers for call in one.get("tool_calls", ())]
    used = list(dict.fromkeys(call["function"]["name"] for call in calls))
    metadata: Json = {
        "task_id": rollout.task_id,
        "rollout_id": rollout.rollout_id,
        "repeat_index": rollout.repeat_index,
        "environment": rollout.text("environment"),
        "stop_reason": rollout.text("stop_reason"),
        "steps_taken": told.get("steps_taken", sum(one["role"] == "assistant" for one in answers)),
        "tools_used": told.get("tools_used", used),
        "verified": rollout.reward is not None,
    }
    if "weights_versions" in told:
        metadata["weights_versions"] = told["weights_versions"]
    if isinstance(row.get("tags"), dict):
        metadata["tags"] = row["tags"]
    return metadata


def _sft(rollout: StoredRollout, said: Conversation) -> Iterator[Json]:
    yield {"messages": said.messages} | _tools_as_text(said.tools)


def _tokens(rollout: StoredRollout, said: Conversation) -> Iterator[Json]:
    samples = samples_of(rollout)
    versions = rollout.metadata.get("weights_versions", [])
    for number, sample in enumerate(samples):
        yield {
            "input_ids": sample.input_ids,
            "labels": sample.labels,
            "mask": sample.mask,
            "logprobs": sample.logprobs,
            "reward": rollout.reward,
            "task_id": rollout.task_id,
            "rollout_id": rollout.rollout_id,
            "sample": number,
            "samples": len(samples),
            "weights_versions": versions,
        }


def _openai(rollout: StoredRollout, said: Conversation) -> Iterator[Json]:
    record: Json = {"messages": said.messages}
    if said.tools:
        record["tools"] = said.tools
        params = rollout.row["responses_create_params"]
        record["parallel_tool_calls"] = params.get("parallel_tool_calls") is not False
    yield record


def _dpo(pair: Pair, facts: PairFacts) -> Json:
    return {
        "prompt": pair.prompt,
        "chosen": pair.chosen,
        "rejected": pair.rejected,
        **_tools_as_text(facts.tools),
        "task_id": facts.task_id,
        "chosen_reward": facts.rewards[0],
        "rejected_reward": facts.rewards[1],
        "chosen_rollout_id": facts.rollout_ids[0],
        "rejected_rollout_id": facts.rollout_ids[1],
    }


def _openai_dpo(pair: Pair, facts: PairFacts) -> Json:
    given: Json = {"messages": pair.prompt}
    if facts.tools:
        given["tools"] = facts.tools
    return {
        "input": given,
        "preferred_output": pair.chosen,
        "non_preferred_output": pair.rejected,
    }


def _tools_as_text(tools: list[Json]) -> dict[str, Any]:
    """As JSON text: a table of Arrow unites the schemas of all rows, and fills them with nulls."""
    return {"tools": dumps(tools).decode("utf-8", "surrogatepass")} if tools else {}


_OF_TEMPLATES: Final = ChatStyle(arguments_as_objects=True)
_OF_OPENAI: Final = ChatStyle(keep_reasoning=False, developer_role=True)

FORMATS: Final[Mapping[str, Format]] = {
    "messages": Format(
        "every rollout as chat messages with reward and metadata",
        of_rollout=_messages_with_tokens,
        has_tokens=True,
    ),
    "sft": Format(
        "demonstrations for supervised fine-tuning (TRL)",
        style=_OF_TEMPLATES,
        demonstrations=True,
        of_rollout=_sft,
    ),
    "tokens": Format("exact token ids with masks and log probabilities", of_rollout=_tokens),
    "dpo": Format("preference pairs (TRL)", style=_OF_TEMPLATES, of_pair=_dpo),
    "openai": Format(
        "demonstrations for OpenAI's fine-tuning",
        style=_OF_OPENAI,
        demonstrations=True,
        of_rollout=_openai,
    ),
    "openai-dpo": Format(
        "preference pairs for OpenAI's fine-tuning", style=_OF_OPENAI, of_pair=_openai_dpo
    ),
}
"""By the name that `gym-cli export --format` has."""

TEXT_ONLY: Final[OfRollout] = _messages
"""The records of `messages` without token ids."""
