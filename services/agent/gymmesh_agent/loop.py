"""The turn logic of the tool loop, as a pure state machine: no I/O, no clock, no tasks.

Each report of what happened returns what to do next:

    opened() ──► CallModel ──model_answered()──► RunTools ──tools_answered()──► CallModel …
                                             └─► TakeTurn ──turn_taken()──────► CallModel …
                                             └─► Stop

Rules, in the order of evaluation:

1. An answer that was cut short ends the rollout. Its function calls are not run.
2. All function calls of an answer are run, even if a limit has been reached: so the environment's
   state matches the model's calls, and the outputs are recorded.
3. An answer without function calls goes to the environment if that takes turns, for the same
   reason even if a limit has been reached; otherwise the model has finished.
4. An environment that reports `done` ends the rollout.
5. Then, before the next model call, the limits are checked: steps first, then output tokens. So
   a limit of one step means one model call with its tools run (as in NeMo Gym's loop). A model
   that finishes in the call that reaches a limit counts as finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2

_CUT_SHORT = {
    "max_output_tokens": rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS,
    "content_filter": rollout_pb2.STOP_REASON_CONTENT_FILTER,
    "aborted": rollout_pb2.STOP_REASON_ABORTED,
}


class Completion(msgspec.Struct, frozen=True):
    """The end of a rollout that can be judged and trained on.

    Attributes:
        reason: why it ended.
        detail: one line of text, for STOP_REASON_AGENT_RULE.
    """

    reason: rollout_pb2.StopReason.ValueType
    detail: str = ""

    @classmethod
    def by_rule(cls, detail: str) -> Completion:
        """The rollout ended by a rule of the agent's own; `detail` describes the rule in one
        line.
        """
        return cls(rollout_pb2.STOP_REASON_AGENT_RULE, detail)

    @classmethod
    def program_exited(cls) -> Completion:
        """The program that ran as the agent has ended."""
        return cls(rollout_pb2.STOP_REASON_PROGRAM_EXITED)


class StopRollout(Exception):
    """Ends the rollout as completed, from anywhere in an agent.

    `RolloutContext` raises it if a limit of the policy forbids a model call. If an agent lets it
    pass, the rollout ends with the limit as its stop reason. An agent may also catch it and
    continue without the call.
    """

    def __init__(self, completion: Completion) -> None:
        super().__init__(rollout_pb2.StopReason.Name(completion.reason))
        self.completion = completion


class ContextExceeded(StopRollout):
    """The conversation no longer fits the model's context."""

    def __init__(self) -> None:
        super().__init__(Completion(rollout_pb2.STOP_REASON_CONTEXT_LENGTH))


class LoopLimits(msgspec.Struct, frozen=True):
    """The policy's own limits; reaching one completes the rollout.

    Attributes:
        max_steps: the maximum number of model calls, at least 1; None: no limit.
        max_total_output_tokens: the maximum number of answer tokens over all model calls; None: no
            limit.
    """

    max_steps: int | None = None
    max_total_output_tokens: int | None = None

    def reached(self, steps: int, output_tokens: int) -> rollout_pb2.StopReason.ValueType | None:
        """The limit that forbids a further model call; None: no limit does."""
        if self.max_steps is not None and steps >= self.max_steps:
            return rollout_pb2.STOP_REASON_MAX_STEPS
        budget = self.max_total_output_tokens
        if budget is not None and output_tokens >= budget:
            return rollout_pb2.STOP_REASON_MAX_OUTPUT_TOKENS
        return None


class CallModel(msgspec.Struct, frozen=True):
    """Call the model with the conversation so far."""


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls concurrently; then report with `tools_answered`."""

    calls: Sequence[responses_pb2.FunctionCall]


class TakeTurn(msgspec.Struct, frozen=True):
    """Let the environment take its turn; then report with `turn_taken`."""


class Stop(Completion, frozen=True):
    """The rollout is over, for this reason; no report may follow."""


Action: TypeAlias = CallModel | RunTools | TakeTurn | Stop
"""What to do next."""


class _State(Enum):
    NEW = auto()
    MODEL = auto()
    TOOLS = auto()
    TURN = auto()
    STOPPED = auto()


class ToolLoop:
    """One rollout's turn logic. Each report returns the next action.

    Args:
        limits: the policy's limits.
        multi_turn: whether the environment takes turns.

    Every method raises RuntimeError if its report does not fit the last action. That is an error of
    the code that drives the loop.
    """

    __slots__ = ("_calls", "_limits", "_multi_turn", "_output_tokens", "_state", "_steps")

    def __init__(self, limits: LoopLimits, *, multi_turn: bool) -> None:
        self._limits = limits
        self._multi_turn = multi_turn
        self._state = _State.NEW
        self._steps = 0
        self._output_tokens = 0
        self._calls = 0

    def opened(self) -> Action:
        """The session is open."""
        if self._state is not _State.NEW:
            raise self._wrong_report(_State.NEW)
        return self._go_on(done=False)

    def model_answered(
        self,
        answer: responses_pb2.Response,
        output_tokens: int,
        calls: Sequence[responses_pb2.FunctionCall] | None = None,
        status: str | None = None,
    ) -> Action:
        """The model answered, with this number of tokens and these function calls.

        Args:
            calls: the function calls of `answer`; None: read them from `answer`.
            status: the status of `answer`; None: read it from `answer`.
        """
        if self._state is not _State.MODEL:
            raise self._wrong_report(_State.MODEL)
        self._steps += 1
        self._output_tokens += output_tokens
        cut = cut_short(answer, answer.status if status is None else status)
        if cut is not None:
            return self._stop(cut)
        if calls is None:
            calls = function_calls(answer.output)
        if calls:
            self._state, self._calls = _State.TOOLS, len(calls)
            return RunTools(calls)
        if self._multi_turn:
            self._state = _State.TURN
            return TakeTurn()
        return self._stop(Stop(rollout_pb2.STOP_REASON_MODEL_FINISHED))

    def context_exceeded(self) -> Action:
        """The conversation no longer fits the model, which is a limit of the policy."""
        if self._state is not _State.MODEL:
            raise self._wrong_report(_State.MODEL)
        return self._stop(Stop(rollout_pb2.STOP_REASON_CONTEXT_LENGTH))

    def tools_answered(self, done: Sequence[bool]) -> Action:
        """Every call of `RunTools` was answered. `done` has one value for each call, in the
        order of the calls: whether the call ended the environment's episode.
        """
        if self._state is not _State.TOOLS:
            raise self._wrong_report(_State.TOOLS)
        if len(done) != self._calls:
            raise RuntimeError(
                f"the number of tool calls in the model's answer is {self._calls}, but the number "
                f"of reported results is {len(done)}"
            )
        return self._go_on(done=any(done))

    def turn_taken(self, *, done: bool) -> Action:
        """The environment took its turn."""
        if self._state is not _State.TURN:
            raise self._wrong_report(_State.TURN)
        return self._go_on(done=done)

    def _go_on(self, *, done: bool) -> Action:
        """The next model call, unless the episode is done or a limit is reached."""
        if done:
            return self._stop(Stop(rollout_pb2.STOP_REASON_ENVIRONMENT_DONE))
        limit = self._limits.reached(self._steps, self._output_tokens)
        if limit is not None:
            return self._stop(Stop(limit))
        self._state = _State.MODEL
        return CallModel()

    def _stop(self, stop: Stop) -> Stop:
        self._state = _State.STOPPED
        return stop

    def _wrong_report(self, state: _State) -> RuntimeError:
        return RuntimeError(
            f"the loop is in state {self._state.name}, but got a report for {state.name}"
        )


def cut_short(answer: responses_pb2.Response, status: str) -> Stop | None:
    """Why the answer, which has this status, is incomplete; None: it is complete.

    If the contract has no value for the reason, the rollout ends with AGENT_RULE, and the detail
    names the reason. An answer that was cut for an unknown reason does not count as finished.
    """
    if status != "incomplete" and not answer.HasField("incomplete_details"):
        return None
    reason = answer.incomplete_details.reason
    if reason in _CUT_SHORT:
        return Stop(_CUT_SHORT[reason])
    detail = f"the answer is incomplete: {reason or 'no reason given'}"
    return Stop(rollout_pb2.STOP_REASON_AGENT_RULE, detail)


def function_calls(
    output: Iterable[responses_pb2.Item],
) -> tuple[responses_pb2.FunctionCall, ...]:
    """The function calls among an answer's items, in order."""
    return tuple([item.function_call for item in output if item.HasField("function_call")])
