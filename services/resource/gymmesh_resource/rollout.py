"""A rollout as a verifier sees it: the task, the conversation, and why the rollout stopped."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.model_access import ModelAccess, Models, UsageCounter
from gymmesh_resource.session import JudgedSession
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Stage
from gymmesh_responses import CodecError, loads, message_text, text_of


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: what the model wrote, and the tool's answer.

    `arguments`: the parsed object, or None if the model did not write a JSON object.
    `output`: the answer's text, or None if the rollout ended before the answer.
    """

    name: str
    call_id: str
    arguments_json: bytes
    arguments: dict[str, Any] | None
    output: str | None


class Transcript:
    """Items of a conversation in order, with shortcuts to their common parts.

    `items` are the contract's messages. Do not change them.
    """

    def __init__(self, items: Sequence[responses_pb2.Item]) -> None:
        self.items = items

    @cached_property
    def texts(self) -> list[str]:
        """The text of each message that the model wrote; empty for a message without text."""
        return [
            message_text(item, item.message)
            for item in self.items
            if item.HasField("message") and item.message.role == "assistant"
        ]

    @property
    def text(self) -> str:
        """The texts of all the model's messages, joined by line breaks."""
        return "\n".join(self.texts)

    @property
    def answer(self) -> str:
        """The text of the model's last message; empty if there is none."""
        return self.texts[-1] if self.texts else ""

    @cached_property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls in the order in which the model made them.

        Some models repeat a call_id in every answer. Outputs with the same id then belong to the
        calls with that id in order.
        """
        outputs: defaultdict[str, deque[str]] = defaultdict(deque)
        for item in self.items:
            if item.WhichOneof("kind") == "function_call_output":
                outputs[item.function_call_output.call_id].append(text_of(item))
        return [
            _tool_call(item.function_call, outputs)
            for item in self.items
            if item.WhichOneof("kind") == "function_call"
        ]


class Rollout(Transcript, ModelAccess):
    """The rollout that a verifier judges.

    `stop_reason` is a value of the contract's StopReason. `turn_rewards`: the rewards of the
    environment's turns, in order. `stages` are the verifier's steps so far.

    A verifier may call a model with `ask` of the rollout or of the session. In `verify_group`, call
    `ask` of the member that the question is about.
    """

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
        super().__init__(items)
        self.task = task
        self.stop_reason = stop_reason
        self.rollout_id = rollout_id
        self.attempt = attempt
        self.turn_rewards = turn_rewards
        self.stages: list[Stage] = []
        self._models = models

    def _usage_counter(self) -> UsageCounter:
        return self.usage

    @property
    def cut_short(self) -> bool:
        """Whether a limit of the policy ended the rollout, not the model or the environment."""
        return self.stop_reason in (
            rollout_pb2.STOP_REASON_MAX_STEPS,
            rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS,
            rollout_pb2.STOP_REASON_CONTEXT_LENGTH,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a step of the verifier: `with rollout.stage("parse") as stage: …`.

        The step is reported with its duration, and with `stage.note` if it is set.
        """
        stage = Stage(name)
        self.stages.append(stage)
        started = time.perf_counter_ns()
        try:
            yield stage
        finally:
            stage.duration_us = (time.perf_counter_ns() - started) // 1000


class Member:
    """One of a task's repeats that are judged together. `verification`: the repeat's own verdict so
    far. `session`: replaces the repeat's own session, which has ended; None: there was no state.
    """

    def __init__(
        self,
        rollout: Rollout,
        verification: rollout_pb2.Verification | None,
        session: JudgedSession[Any] | None = None,
    ) -> None:
        self.rollout = rollout
        self.verification = verification
        self._session = session

    @property
    def state(self) -> Any:
        """The state of its session when the rollout stopped. Raises StateGone if it was not kept.

        If the verifier reads a state that was not kept, the whole group gets no verdicts.
        """
        return None if self._session is None else self._session.state

    @property
    def failure(self) -> Exception | None:
        """The exception that reading the member's state raised."""
        return None if self._session is None else self._session.failure


def _tool_call(call: responses_pb2.FunctionCall, outputs: Mapping[str, deque[str]]) -> ToolCall:
    try:
        arguments = loads(call.arguments)
    except CodecError:
        arguments = None
    return ToolCall(
        name=call.name,
        call_id=call.call_id,
        arguments_json=call.arguments,
        arguments=arguments if isinstance(arguments, dict) else None,
        output=answers.popleft() if (answers := outputs.get(call.call_id)) else None,
    )
