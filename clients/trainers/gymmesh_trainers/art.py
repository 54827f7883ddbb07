"""ART: groups as its trajectory groups.

    made = ArtGroups(tokenizer)
    while (version := await model.get_step()) < 100:
        url, name = model.inference_base_url, model.get_inference_name()
        engine = VllmEngine(url, model=name, api_key=model.inference_api_key)
        async with TrainerCollector(place, model=TokenBackend(tokenizer, engine)) as mesh:
            await mesh.set_weights_version(version)
            async with mesh.step(next_tasks()) as step:
                groups = [one async for group in step for one in made.of(group)]
        await backend.train(model, groups)

The engine is ART's vLLM, which serves the weights of each step under another name. So each step
has its own engine, and all tokens of a rollout have one version.

ART receives messages, and renders them by the chat template again. Only the sampled ids of an
answer reach ART exactly, in the answer's log probabilities. Each sample is one of the trajectory's
`additional_histories`. An answer that the sample trains is a `Choice` with the raw text of its
tokens. An answer that another sample trains is a plain message, which ART does not train. ART's own
tokenizer then turns each history into tokens. If these tokens differ from those that the model
read and wrote, the hook refuses the history. With `lost="warn"` it skips the history with a
warning, and only the rollout's reward is used.

Each actor has its own group, with its own rewards. A rollout that failed, or has no verdict, is an
exception of the group, and never a reward of 0.

Interface: openpipe-art 0.5.18, with its extra `backend` for the tokenizer (torch, transformers).
Tested with ART's own classes and tokenizer; not with its backends, which need GPUs or its service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import art
from art.preprocessing.tokenize import tokenize_trajectory
from art.trajectories import History
from art.types import Choice

from gymmesh.responses.v1 import responses_pb2
from gymmesh_client import UserError
from gymmesh_client.rollout import CallParts, RolloutParts, path_to, shared_ids
from gymmesh_model.backends.templating import for_template
from gymmesh_model.convert import to_chat
from gymmesh_responses import item_from_json, params_to_dict
from gymmesh_trainers.hooks import Lost, LostTokens, refuse_images
from gymmesh_trainers.rollouts import (
    NO_VERSION,
    Rollout,
    RolloutGroup,
    SampleTurn,
    TrainingSample,
)
from gymmesh_trainers.testing import RolloutFailed

__all__ = ["ArtGroups", "Unscored"]

_ANEW: Final = "ART renders the conversation again, and"
_REMEDY: Final = "if append_only is True, try append_only=False, or use another chat template"
# Of the texts that differ, this many characters are shown.
_SHOWN: Final = 20
# ART parses the arguments of tool calls itself for templates that say this.
_PARSED_BY_ART: Final = "tool_call.arguments|items"


class Unscored(Exception):
    """A rollout without a verdict, among the exceptions of a group."""


class ArtGroups:
    """Creates ART's trajectory groups from groups of gymmesh.

    Args:
        tokenizer: the policy's tokenizer, as ART loads it.
        lost: whether to `refuse` a rollout with sampled tokens that ART would not train, or would
            train as other tokens, or `warn`.
        chat_template_kwargs: as in ART's configuration of the model.
        tool_schema_format: as in ART's backend: `default`, or `vllm_openai`.
    """

    def __init__(
        self,
        tokenizer: Any,
        lost: Lost = "refuse",
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_schema_format: str = "default",
    ) -> None:
        self._tokenizer = tokenizer
        self._as_text = _PARSED_BY_ART in str(tokenizer.chat_template)
        self._lost = LostTokens(lost, "ART")
        self._rendering = {
            "chat_template_kwargs": dict(chat_template_kwargs or {}),
            "chat_template_tool_schema_format": tool_schema_format,
        }

    @property
    def counts(self) -> Mapping[str, int]:
        """`tokens_sampled`, `tokens_trained` and `tokens_lost` so far."""
        return self._lost.counts

    def of(self, group: RolloutGroup) -> list[art.TrajectoryGroup]:
        """A trajectory group for each actor with a reward; the root agent's is first. Empty if no
        rollout of the group has a reward; see the group's `failed` and `unscored`.

        Raises UserError for a rollout that ART can't receive.
        """
        histories = [self._histories(rollout) for rollout in group.rollouts]
        errors: list[BaseException] = [RolloutFailed(one) for one in group.failed]
        errors += [Unscored(f"rollout {one.id} has no verdict") for one in group.unscored]
        found = []
        for actor in group.actors:
            rewards = group.rewards_of(actor)
            known = [
                _trajectory(rollout, actor, reward, made.get(actor, ()))
                for rollout, reward, made in zip(group.rollouts, rewards, histories, strict=True)
                if reward is not None
            ]
            metadata = {"task_id": group.task.id, "actor": actor}
            found.append(art.TrajectoryGroup(known, exceptions=errors, metadata=metadata))
            errors = []  # counted once
        return found

    def _histories(self, rollout: Rollout) -> dict[str, list[History]]:
        """The histories of each actor that ART trains as they were sampled."""
        refuse_images(rollout, "ART")
        found: dict[str, list[History]] = {}
        kept = []
        why, remedy = "", ""
        for sample in rollout.samples:
            history, differs = self._exact(rollout, sample)
            if any(differs):
                why, remedy = (why, remedy) if why else differs
                continue
            found.setdefault(sample.actor, []).append(history)
            kept.append(sample)
        self._lost.account(rollout, sum(one.trained for one in kept), kept, why, remedy)
        return found

    def _exact(self, rollout: Rollout, sample: TrainingSample) -> tuple[History, tuple[str, str]]:
        """The sample's history, and how ART's tokens of it differ from the sample's; see
        `_difference`.
        """
        history = self._history(rollout, sample)
        differs = self._difference(history, sample)
        if any(differs) and history.tools:
            # A call may have been made without tools. The rollout has only those that it began
            # with, so the tokens decide.
            plain = self._history(rollout, sample)
            plain.tools = None
            if not any(self._difference(plain, sample)):
                return plain, ("", "")
        return history, differs

    def _difference(self, history: History, sample: TrainingSample) -> tuple[str, str]:
        """Where ART's tokens and mask of the history first differ from the sample's, and what may
        be done about it; both are empty where they don't.
        """
        try:
            made = tokenize_trajectory(
                self._tokenizer, None, history, 1.0, False, art.Trajectory(), **self._rendering
            )
        except Exception as error:
            # Templates are programs of their own, and ART's tokenizer fails at some conversations.
            text = " ".join(str(error).split())[:100]
            text = text.rstrip(".!")
            return f"{_ANEW} ART's tokenizer raised {type(error).__name__}: {text}", _REMEDY
        if made is None:
            return f"{_ANEW} ART's tokenizer finds no answer in the conversation", _REMEDY
        tokens = sample.tokens
        place = first_difference(made.token_ids, tokens)
        if place is not None:
            here, there = self._shown(tokens, place), self._shown(made.token_ids, place)
            return (
                f"{_ANEW} the tokens differ from those that the model read and wrote. At token "
                f"{place}, {here} became {there}"
            ), _REMEDY
        place = first_difference(made.assistant_mask, sample.mask)
        if place is None:
            return "", ""
        text = self._shown(tokens, place)
        if sample.mask[place]:
            return f"ART doesn't train token {place}, at {text}, which the model sampled", ""
        return (
            f"ART trains all tokens of an answer, but token {place}, at {text}, was not sampled "
            "freely"
        ), ""

    def _shown(self, ids: Sequence[int], place: int) -> str:
        """The text from a token on, cut."""
        text = str(self._tokenizer.decode(ids[place : place + _SHOWN]))
        return repr(text[:_SHOWN]) if place < len(ids) else "the end"

    def _history(self, rollout: Rollout, sample: TrainingSample) -> History:
        turns = {turn.call_id: turn for turn in sample.turns if turn.trained}
        items, choices = _conversation(rollout, sample, turns)
        params = params_to_dict(rollout.message.started.params)
        chat = to_chat(params | {"input": None}, items=items)
        tokens, logprobs = sample.tokens, sample.logprobs
        if not logprobs:
            raise UserError(
                f"rollout {rollout.id} of task {rollout.task.id}: log probabilities are "
                "missing, or come from different distributions. ART needs a log probability "
                "for every sampled token, and one distribution for all"
            )
        messages: list[Any] = []
        for message in chat["messages"]:
            turn = choices.get(str(message.get("content")))
            if turn is None:
                messages.append(message if self._as_text else for_template(message))
                continue
            ids = tokens[turn.begin : turn.end]
            messages.append(self._choice(ids, logprobs[turn.begin : turn.end]))
        history = History(messages_and_choices=messages)
        # Not validated: that changes the order of keys, and so the prompt.
        history.tools = chat.get("tools")
        return history

    def _choice(self, ids: Sequence[int], logprobs: Sequence[float]) -> Choice:
        """An answer with exact ids. It has no tool calls: ART would render them a second time."""
        text = str(self._tokenizer.decode(ids, skip_special_tokens=False))
        # ART looks at the first token's text, to find a thought that the template has begun.
        first = list(str(self._tokenizer.decode(ids[:1])).encode("utf-8", "replace"))
        content: list[dict[str, Any]] = [
            {"token": f"token_id:{one}", "logprob": logprob, "top_logprobs": []}
            for one, logprob in zip(ids, logprobs, strict=True)
        ]
        content[0]["bytes"] = first
        choice: Choice = Choice.model_validate(
            {
                "finish_reason": "stop",
                "index": 0,
                "logprobs": {"content": content},
                "message": {"role": "assistant", "content": text},
            }
        )
        return choice


def _conversation(
    rollout: Rollout, sample: TrainingSample, turns: Mapping[str, SampleTurn]
) -> tuple[list[responses_pb2.Item], dict[str, SampleTurn]]:
    """The items up to the sample's last answer, with a text of our own in place of each answer that
    the sample trains; and the calls by these texts.
    """
    message = rollout.message
    parts = RolloutParts.of(message)
    calls = {call.call_id: (call, call.response) for call in parts.calls}
    path, whole = path_to(calls, sample.turns[-1].call_id)
    found = CallParts(parts.tools, parts.turns, shared_ids(parts.calls, calls))
    items = list(message.started.items) if whole else []
    choices: dict[str, SampleTurn] = {}
    for call_id, answered in path:
        part = found.of(call_id, answered)
        begin, end = part.context_count, part.context_count + part.answer_count
        answer = part.items[begin:end]
        if call_id in turns:
            name = f"<gymmesh answer {len(choices)}>"
            choices[name] = turns[call_id]
            answer = [_text(name)]
        last = call_id == sample.turns[-1].call_id
        items += [*part.items[:begin], *answer, *(() if last else part.items[end:])]
    return items, choices


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place at which two sequences differ, the end of one included; None: they are
    equal. Pure.
    """
    both = enumerate(zip(one, other, strict=False))
    short = min(len(one), len(other))
    place = next((place for place, (here, there) in both if here != there), short)
    return None if place == len(one) == len(other) else place


def _text(text: str) -> responses_pb2.Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return item_from_json({"type": "message", "role": "assistant", "content": [part]})


def _trajectory(
    rollout: Rollout, actor: str, reward: float, histories: Sequence[History]
) -> art.Trajectory:
    versions = sorted(_versions(rollout, actor))
    return art.Trajectory(
        # ART validates its first history anew, which changes the order of a tool's keys, and so the
        # prompt. It is the prompt alone, for logs, and nothing in it can be trained.
        messages_and_choices=_prompt(histories),
        additional_histories=list(histories),
        reward=reward,
        initial_policy_version=versions[0] if versions else None,
        final_policy_version=versions[-1] if versions else None,
        metrics={**rollout.components, "truncated": rollout.truncated},
        metadata={"rollout_id": rollout.id, "stop_reason": rollout.stop_reason},
    )


def _prompt(histories: Sequence[History]) -> list[Any]:
    """The messages before the first answer."""
    messages = histories[0].messages_and_choices if histories else []
    return list(
        takewhile(lambda one: not isinstance(one, Choice) and one["role"] != "assistant", messages)
    )


def _versions(rollout: Rollout, actor: str) -> set[int]:
    """Those of the weights that sampled the actor's tokens."""
    return {
        version
        for sample in rollout.by_actor[actor]
        for version in sample.weights_versions
        if version != NO_VERSION
    }
