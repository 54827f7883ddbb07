"""The plan of a rollout: its parameters and time limits, read once from its request, then constant.

The rollouts of a run have the same options, and the repeats of a task have the same parameters, so
plans are cached by these inputs. Thousands of attempts share a cached plan. Neither plans nor
received messages are ever changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.events import EventBounds
from gymmesh_agent.loop import LoopLimits
from gymmesh_responses import (
    CodecError,
    loads,
    new_message,
    overlay_without,
    params_from_json,
    params_to_dict,
)
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.names import check_name

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

# The most plans that are kept, and as many with a session's tools; the last used stay. A task's
# parameters may hold images, so that more of them could fill the memory.
_CACHED = 64


class AttemptId(msgspec.Struct, frozen=True, dict=True):
    """The identity of one attempt.

    Attributes:
        rollout_id: the rollout.
        attempt: the attempt's number, from 1.
        seed: the task's seed; None: it has none.
        run_id: the run; empty if it is unknown.
    """

    rollout_id: str
    attempt: int
    seed: int | None = None
    run_id: str = ""

    @cached_property
    def name(self) -> str:
        """`<rollout_id>/<attempt>`, the beginning of the ids of its requests."""
        return f"{self.rollout_id}/{self.attempt}"


@dataclass(frozen=True, slots=True, eq=False)
class RolloutPlan:
    """A request's settings, completed by the agent's configuration.

    Attributes:
        options: the options of the request.
        limits: the policy's limits in force.
        max_wall_s: the operator's budget in seconds.
        bounds: the maximum number and the maximum bytes of events.
        models: the names of model services, by role.
        deltas: whether answers are sent as they are generated.
        capture: which tokens to capture; None: none.
        append_only: whether the prompts of captured calls keep the tokens of earlier calls.
        allow_divergence: whether a violation of the exact-token law is only counted.
        max_staleness: the maximum number of versions that the oldest weights may be behind; None:
            no limit.
        skip_verification: whether the rollout is not judged.
        keep_final_state: whether the verdict includes the session's final state.
        params: the parameters of policy calls, without input; see `RolloutPlans.with_tools`.
        items: the items before the first model call: the agent's own, then the task's.
    """

    options: agent_pb2.RolloutOptions
    limits: LoopLimits
    max_wall_s: float
    bounds: EventBounds
    models: Mapping[str, str]
    deltas: bool
    capture: tokens_pb2.CaptureOptions | None
    append_only: bool
    allow_divergence: bool
    max_staleness: int | None
    skip_verification: bool
    keep_final_state: bool
    params: responses_pb2.ResponseParams
    items: tuple[responses_pb2.Item, ...]


class RolloutPlans:
    """Reads the plans of one agent's rollouts.

    Args:
        config: the agent's configuration.
        preamble: the items that the agent puts before a task's.
    """

    def __init__(self, config: AgentConfig, preamble: Sequence[responses_pb2.Item]) -> None:
        self._config = config
        self._preamble = tuple(preamble)
        self._cached_plan = lru_cache(_CACHED)(self._read)
        self._cached_params = lru_cache(_CACHED)(_with_tools)

    def read(
        self, options: agent_pb2.RolloutOptions, params: responses_pb2.ResponseParams
    ) -> RolloutPlan:
        """The plan of a request with these options, for a task with these parameters.

        Raises:
            MeshError: FIELD_INVALID; the message names the field.
        """
        return self._cached_plan(options.SerializeToString(), params.SerializeToString())

    def with_tools(self, plan: RolloutPlan, tools: Sequence[responses_pb2.Tool]) -> RolloutPlan:
        """The plan with a session's tools among the parameters; see `params.with_tools`."""
        if not tools:
            return plan
        return self._cached_params(plan, tuple([tool.SerializeToString() for tool in tools]))

    def _read(self, options_bytes: bytes, params_bytes: bytes) -> RolloutPlan:
        config = self._config
        options = agent_pb2.RolloutOptions.FromString(options_bytes)
        task = responses_pb2.ResponseParams.FromString(params_bytes)
        for role, name in options.models.items():
            check_name("options.models", role)
            check_name("options.models", name)
        limits = LoopLimits(
            max_steps=_limit("max_steps", config.max_steps, options),
            max_total_output_tokens=_limit(
                "max_total_output_tokens", config.max_total_output_tokens, options
            ),
        )
        return RolloutPlan(
            options=options,
            limits=limits,
            max_wall_s=_max_wall(config, options),
            bounds=EventBounds(
                _bound("max_events", config.max_events, options),
                _bound("max_event_bytes", config.max_event_bytes, options),
            ),
            models={**config.models, **options.models},
            deltas=options.deltas,
            capture=_capture(config, options),
            append_only=(
                options.append_only
                if options.HasField("append_only")
                else config.append_only is not False
            ),
            allow_divergence=options.allow_token_divergence,
            max_staleness=options.max_staleness if options.HasField("max_staleness") else None,
            skip_verification=options.skip_verification,
            keep_final_state=options.keep_final_state or not options.HasField("keep_final_state"),
            params=merge_params(config.params, task, read_override(options.params_override_json)),
            items=(*self._preamble, *task_items(task)),
        )


def _with_tools(plan: RolloutPlan, tools: tuple[bytes, ...]) -> RolloutPlan:
    session_tools = [responses_pb2.Tool.FromString(tool) for tool in tools]
    return replace(plan, params=with_tools(plan.params, session_tools))


def _limit(
    key: Literal["max_steps", "max_total_output_tokens"],
    configured: int | None,
    options: agent_pb2.RolloutOptions,
) -> int | None:
    if not options.HasField(key):
        return configured
    asked: int = getattr(options, key)
    if asked < 1:
        raise invalid(f"options.{key}", f"the value must be at least 1, not {asked}")
    return asked


def _bound(
    key: Literal["max_events", "max_event_bytes"],
    configured: int,
    options: agent_pb2.RolloutOptions,
) -> int:
    if not options.HasField(key):
        return configured
    asked: int = getattr(options, key)
    if asked < 1:
        raise invalid(f"options.{key}", "the value must be at least 1, not 0")
    return asked


def _max_wall(config: AgentConfig, options: agent_pb2.RolloutOptions) -> float:
    if not options.HasField("max_wall_s"):
        return config.max_wall_s
    if not 0 < options.max_wall_s < float("inf"):
        problem = f"the value must be a positive number of seconds, not {options.max_wall_s}"
        raise invalid("options.max_wall_s", problem)
    return options.max_wall_s


def _capture(
    config: AgentConfig, options: agent_pb2.RolloutOptions
) -> tokens_pb2.CaptureOptions | None:
    if not options.HasField("capture"):
        if not config.capture_tokens:
            return None
        return tokens_pb2.CaptureOptions(
            token_ids=True, logprobs=True, side_data=config.capture_side_data
        )
    asked = options.capture
    return asked if asked.token_ids or asked.logprobs else None


def read_override(raw: bytes) -> dict[str, Any]:
    """`RolloutOptions.params_override_json`, parsed.

    Raises:
        MeshError: FIELD_INVALID if it is not an object of Responses parameters, or if it has
            `input`, which only the task sets.
    """
    if not raw:
        return {}
    try:
        override = loads(raw)
        params_from_json(override if isinstance(override, dict) else raw)
    except CodecError as error:
        raise invalid("options.params_override_json", str(error)) from None
    if "input" in override:
        raise invalid(
            "options.params_override_json", "an override may not replace the task's `input`"
        )
    parsed: dict[str, Any] = override
    return parsed


def merge_params(
    under: Mapping[str, Any], task: responses_pb2.ResponseParams, over: Mapping[str, Any]
) -> responses_pb2.ResponseParams:
    """The task's parameters without `input`; they override `under`, and `over` overrides them.

    Each key is replaced as a whole; objects are not merged.

    Raises:
        MeshError: FIELD_INVALID if the task's parameters cannot be written as JSON.
    """
    params = responses_pb2.ResponseParams()
    params.CopyFrom(task)
    params.ClearField("input")
    params.ClearField("input_text")
    params.input_omitted = True
    try:
        # An `input` that is neither text nor a list stands in the overlay.
        params.overlay_json = overlay_without(params.overlay_json, "input")
        if under or over:
            return params_from_json({**under, **params_to_dict(params), **over})
    except CodecError as error:
        raise invalid("task.params", str(error)) from None
    return params


def with_tools(
    params: responses_pb2.ResponseParams, session_tools: Sequence[responses_pb2.Tool]
) -> responses_pb2.ResponseParams:
    """The parameters with the session's tools after the task's own. If two function tools have
    the same name, the session's is kept.
    """
    if not session_tools:
        return params
    names = {tool.function.name for tool in session_tools if tool.HasField("function")}
    merged = responses_pb2.ResponseParams()
    merged.CopyFrom(params)
    kept = [tool for tool in params.tools if tool.function.name not in names]
    merged.ClearField("tools")
    merged.tools.extend(kept)
    merged.tools.extend(session_tools)
    merged.tools_omitted = False
    # A `tools: null` in the overlay would win over the field.
    merged.overlay_json = overlay_without(merged.overlay_json, "tools")
    return merged


def task_items(task: responses_pb2.ResponseParams) -> list[responses_pb2.Item]:
    """The task's input as items. An input that is text becomes one user message.

    Raises:
        MeshError: FIELD_INVALID if the input is neither text nor a list.
    """
    if task.HasField("input_text"):
        return [new_message("user", task.input_text)]
    overlay = task.overlay_json
    if task.input_omitted and overlay and overlay_without(overlay, "input") != overlay:
        raise invalid("task.params.input", "the input is neither text nor a list of items")
    return list(task.input)


def add_items(
    into: RepeatedCompositeFieldContainer[responses_pb2.Item], items: Iterable[responses_pb2.Item]
) -> None:
    """Append copies of items to a field of a message.

    The items are copied one by one, because `extend` serialises them, which is slow for long items.
    """
    for item in items:
        into.add().CopyFrom(item)


def invalid(field: str, problem: str) -> MeshError:
    """FIELD_INVALID, with a message that names the field."""
    return field_invalid(field, f"cannot be used: {problem}")


# The attempt stops a little before the caller's deadline, so that the caller still receives the
# reason: a tenth of the time, and at most this many seconds.
_REPLY_S = 0.5
_REPLY_SHARE = 0.1
# A peer may be this much later than the agent's own budget, so that the budget ends the rollout
# and is not taken for a slow peer.
_GRACE_S = 1.0
# How long an agent may take to stop: half of the time for the reply, where there is a deadline.
_STOP_S = 0.3
_LEAST_S = 0.001


class RolloutClock:
    """The time of one attempt.

    Args:
        deadline: when the caller's call ends, in the clock's seconds; None: it has no deadline.
        max_wall_s: the operator's budget in seconds, from now.
        now: the clock; tests replace `time.monotonic`.

    Attributes:
        began: when this object was created.
        stop_s: seconds that an agent may take to stop after it is cancelled.
        deadline_first: whether the caller's deadline ends the attempt, not the budget.
    """

    __slots__ = ("_end", "_hops_end", "_now", "began", "deadline_first", "max_wall_s", "stop_s")

    def __init__(
        self,
        deadline: float | None,
        max_wall_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self.began = now()
        self.max_wall_s = max_wall_s
        self.stop_s = _STOP_S
        self.deadline_first = False
        self._end = self.began + max_wall_s
        self._hops_end = self._end + _GRACE_S
        if deadline is not None:
            reply = max(0.0, min(_REPLY_S, _REPLY_SHARE * (deadline - self.began)))
            self.stop_s = reply / 2
            self._hops_end = min(self._hops_end, deadline)
            if deadline - reply <= self._end:
                self._end = deadline - reply
                self.deadline_first = True

    def elapsed(self) -> float:
        """Seconds since this object was created."""
        return self._now() - self.began

    def remaining(self) -> float:
        """Seconds until the attempt is stopped, never negative."""
        return max(0.0, self._end - self._now())

    def hop(self, cap: float) -> float:
        """The timeout, in seconds, of a call to a peer that may take `cap` seconds."""
        left = self._hops_end - self._now()
        return cap if cap < left else max(_LEAST_S, left)
