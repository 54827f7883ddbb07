"""One rollout that TRL drives: its session in an environment, the tool calls, and the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.environment import Environments, SessionClient
from gymmesh_agent.failures import StepFailed, failure_of
from gymmesh_agent.plan import AttemptId, RolloutClock
from gymmesh_client import UserError
from gymmesh_responses import bytes_to_text, dumps, text_of
from gymmesh_runtime.errors import from_status
from gymmesh_trainers.trl.transcript import CalledTool, transcript_of

_NO_LIMIT: Final = math.inf


class ToolUnanswered(Exception):
    """A call that the environment did not answer; TRL shows its text to the model."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """What became of a rollout: a verdict, or a failure.

    Attributes:
        task_id: its task.
        verification: the verdict; None where the rollout failed.
        failure: where and why it failed; None where it was judged.
        stop_reason: why it ended.
    """

    task_id: str
    verification: pb.Verification | None
    failure: pb.Failure | None
    stop_reason: pb.StopReason.ValueType

    @property
    def reward(self) -> float | None:
        """The verified reward; None where it failed or was not judged, which is not 0."""
        verdict = self.verification
        return verdict.reward if verdict is not None and verdict.HasField("reward") else None

    @property
    def why(self) -> str:
        """Why it failed; empty where it did not."""
        return "" if self.failure is None else from_status(self.failure.status).message


class Episode:
    """A session from its opening to its verdict; for one rollout.

    Args:
        environments: where sessions are opened.
        name: the environment's.
        attempt: the rollout.
        task: the task.
        tools: the schemas that the model is shown, by name.
        counts: counts `parts_left_out` and `after_done`.

    Attributes:
        failure: set by the first step that failed; later calls are not made.
    """

    def __init__(
        self,
        environments: Environments,
        name: str,
        attempt: AttemptId,
        task: pb.Task,
        tools: Mapping[str, bytes],
        counts: Counter[str],
    ) -> None:
        clock = RolloutClock(None, _NO_LIMIT)
        self.task = task
        self.failure: pb.Failure | None = None
        self._session = SessionClient(environments, name, attempt, task, clock)
        self._attempt = attempt
        self._tools = tools
        self._counts = counts
        self._called: list[CalledTool] = []
        self._closed = False

    async def open(self) -> str | None:
        """Open the session; what the environment says first, or None.

        Raises UserError where TRL has no room for what the session has.
        """
        try:
            await self._session.open()
        except StepFailed as error:
            self._fail(error)
            return None
        opened = self._session.opened
        own = {one.function.name: one.function.parameters_json for one in opened.tools}
        if own != self._tools:
            raise UserError(
                f"task {self.task.task_id}: the tools of its session differ from the tools that "
                "the environment lists, but TRL shows the same tools to every task. Collect with "
                "TrlRollouts instead"
            )
        return _opening(opened.items, self.task.task_id)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; its answer for the model, an error of the tool's own included.

        Raises ToolUnanswered if there is none.
        """
        if self.failure is not None:
            raise ToolUnanswered("the environment is closed")
        if any(one.done for one in self._called):
            raise ToolUnanswered("the episode is over")
        number = len(self._called) + 1
        call_id = f"call_{number}"
        try:
            reply = await self._session.call_tool(
                name, dumps(arguments), call_id, f"{self._attempt.name}/tool-{number}"
            )
        except StepFailed as error:
            self._fail(error)
            raise ToolUnanswered("the environment did not answer") from None
        self._called.append(CalledTool(name, call_id, reply.done))
        return self._text(reply)

    async def judge(
        self, messages: Sequence[Mapping[str, Any]], *, cut_short: bool
    ) -> EpisodeOutcome:
        """The rollout's outcome; the session is closed."""
        found = transcript_of(messages, self._called, cut_short=cut_short)
        self._counts["after_done"] += found.after_done
        verdict = None
        if self.failure is None:
            try:
                verified, _ = await self._session.verify(found.items, found.stop_reason, ())
                verdict = verified.verification
            except StepFailed as error:
                self._fail(error)
        await self.close()
        return EpisodeOutcome(self.task.task_id, verdict, self.failure, found.stop_reason)

    async def close(self) -> None:
        """Close the session, once."""
        if not self._closed:
            self._closed = True
            await self._session.close()

    def _fail(self, error: StepFailed) -> None:
        if self.failure is None:
            safe = self._session.retry_safe
            self.failure = failure_of(error, environment_retry_safe=safe)

    def _text(self, reply: resource_pb2.CallToolResponse) -> str:
        if reply.WhichOneof("output") != "parts":
            return bytes_to_text(reply.text)
        output = responses_pb2.FunctionCallOutput(parts=reply.parts)
        texts = [one for one in reply.parts.parts if one.HasField("input_text")]
        self._counts["parts_left_out"] += len(reply.parts.parts) - len(texts)
        return text_of(responses_pb2.Item(function_call_output=output))


def _opening(items: Sequence[responses_pb2.Item], task_id: str) -> str | None:
    """What follows the prompt: texts of the user's, which TRL puts behind the last message."""
    if not items:
        return None
    if not all(one.HasField("message") and one.message.role == "user" for one in items):
        raise UserError(
            f"task {task_id}: its session starts with items other than user messages, which TRL "
            "can't represent. Collect with TrlRollouts instead"
        )
    return "".join(f"\n\n{text_of(one)}" for one in items)
