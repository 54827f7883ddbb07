"""A rollout as a verifier sees it: the task, what was said and done, and why it stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import CodecError, loads, message_text, text_of

from .models import Ledger, ModelAccess, Models
from .task import Task
from .verdicts import Stage

__all__ = ["Member", "Rollout", "ToolCall", "Transcript"]

# Of the class: a message looks through the names of its fields to find its own.
_HAS_FIELD = responses_pb2.Item.HasField


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: what the model wrote, and what it was answered.

    `arguments`: the parsed object, or None where the model wrote no JSON object.
    `output`: the answer's text, or None where the rollout ended before it.
    """

    name: str
    call_id: str
    arguments_json: bytes
    arguments: dict[str, Any] | None
    output: str | None


class Transcript:
    """Items of a conversation in order, and what is usually wanted of them.

    `items` are the contract's messages and are not to be changed.
    """

    # Beside the attributes that an author's code may add.
    __slots__ = ("__dict__", "__weakref__", "_texts", "items")

    def __init__(self, items: Sequence[responses_pb2.Item]) -> None:
        self.items = items
        self._texts: list[str] | None = None

    @property
    def texts(self) -> list[str]:
        """The text of each message that the model wrote; one without text is empty."""
        texts = self._texts
        if texts is None:
            texts = []
            for item in self.items[:]:  # the end of an iteration is an exception, a slice's not
                if _HAS_FIELD(item, "message"):
                    message = item.message
                    if message.role == "assistant":
                        texts.append(message_text(item, message))
            self._texts = texts
        return texts

    @property
    def text(self) -> str:
        """All that the model wrote in messages, a line break between two of them."""
        return "\n".join(self.texts)

    @property
    def answer(self) -> str:
        """The model's last message; empty where there is none."""
        return self.texts[-1] if self.texts else ""

    @cached_property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls in the order in which the model made them."""
        outputs = {
            item.function_call_output.call_id: text_of(item)
            for item in self.items
            if item.WhichOneof("kind") == "function_call_output"
        }
        return [
            _tool_call(item.function_call, outputs)
            for item in self.items
            if item.WhichOneof("kind") == "function_call"
        ]


class _Told(msgspec.Struct):
    """What else is known of a rollout, under the names that a VerifyRequest has for it."""

    stop_reason: rollout_pb2.StopReason.ValueType
    rollout_id: str
    attempt: int
    turn_rewards: Sequence[float]


class Rollout(Transcript, ModelAccess):
    """What is to be judged.

    `stop_reason` is a value of the contract's StopReason. `turn_rewards`: the rewards of the
    environment's turns, in order. `stages` are the verifier's steps so far.

    A verifier may `ask` a model here as well as of the session: in `verify_group`, of the member
    that the question is about.
    """

    __slots__ = ("_models", "_told", "stages", "task")

    task: Task
    stages: list[Stage]
    _told: _Told | verify_pb2.VerifyRequest

    def __init__(
        self,
        task: Task,
        items: Sequence[responses_pb2.Item],
        stop_reason: rollout_pb2.StopReason.ValueType,
        rollout_id: str = "",
        attempt: int = 0,
        turn_rewards: Sequence[float] = (),
        models: Models | None = None,
    ) -> None:
        Transcript.__init__(self, items)
        self.task = task
        self.stages = []
        self._told = _Told(stop_reason, rollout_id, attempt, turn_rewards)
        self._models = models

    @classmethod
    def told_by(cls, request: verify_pb2.VerifyRequest, models: Models | None) -> Rollout:
        """The one that a request asks a verdict on.

        Most verifiers look at little of it, and to read it all takes longer than they do: so the
        request is asked for what they look at.
        """
        rollout = cls.__new__(cls)
        rollout.items = request.transcript
        rollout._texts = None
        rollout.task = Task(request.task)
        rollout.stages = []
        rollout._told = request
        rollout._models = models
        return rollout

    def _ledger(self) -> Ledger:
        return self.usage

    @property
    def stop_reason(self) -> rollout_pb2.StopReason.ValueType:
        """Why it stopped."""
        return self._told.stop_reason

    @property
    def rollout_id(self) -> str:  # type: ignore[override]  # a property here, an attribute there
        """Its id."""
        return self._told.rollout_id

    @property
    def attempt(self) -> int:
        """The attempt's number."""
        return self._told.attempt

    @property
    def turn_rewards(self) -> Sequence[float]:
        """The rewards of the environment's turns, in order."""
        return self._told.turn_rewards

    @property
    def cut_short(self) -> bool:
        """Whether a limit of the policy ended it, rather than the model or the environment."""
        return self.stop_reason in (
            rollout_pb2.STOP_REASON_MAX_STEPS,
            rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS,
            rollout_pb2.STOP_REASON_CONTEXT_LENGTH,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a step of the verifier: `with rollout.stage("parse") as stage: …`.

        The step is reported with its duration, and with `stage.note` where that is set.
        """
        stage = Stage(name)
        self.stages.append(stage)
        started = time.perf_counter_ns()
        try:
            yield stage
        finally:
            stage.duration_us = (time.perf_counter_ns() - started) // 1000


@dataclass(frozen=True, slots=True)
class Member:
    """One of a task's repeats that are judged together; `verification`: its own verdict so far."""

    rollout: Rollout
    verification: rollout_pb2.Verification | None


def _tool_call(call: responses_pb2.FunctionCall, outputs: dict[str, str]) -> ToolCall:
    try:
        arguments = loads(call.arguments)
    except CodecError:
        arguments = None
    return ToolCall(
        name=call.name,
        call_id=call.call_id,
        arguments_json=call.arguments,
        arguments=arguments if isinstance(arguments, dict) else None,
        output=outputs.get(call.call_id),
    )
