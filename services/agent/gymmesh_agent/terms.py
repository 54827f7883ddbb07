"""What requests for rollouts set, read once for all that set the same.

The rollouts of a run come with the same options, and the repeats of a task with the same
parameters, by the thousand. Each is given what was read for the first. That also saves memory:
thousands may wait at a time, and a message of their own each would be a tenth of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.loop import LoopLimits
from gymmesh_agent.params import fill_params, merge_params, read_override, task_items, with_tools
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.names import check_name

V = TypeVar("V")
Where: TypeAlias = tuple[str, str, str]
"""An environment's name, its version and its instance's id, as far as they are known."""

# Methods of the class: a message looks through the names of its fields to find its own.
_params_bytes = responses_pb2.ResponseParams.SerializeToString
_tool_bytes = responses_pb2.Tool.SerializeToString
_ALL_TOKENS = tokens_pb2.CaptureOptions(token_ids=True, logprobs=True)

# How much of what was read is kept, as bytes of the messages that it was read from.
_OPTIONS_BYTES = 1 << 18
_PARAMS_BYTES = 1 << 22
_TOOLS_BYTES = 1 << 16
# What an entry counts for by itself.
_ENTRY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Terms:
    """What a request's options say, completed by the agent's configuration.

    Attributes:
        options: the options themselves.
        limits: the policy's limits in force.
        max_wall_s: the operator's budget in seconds.
        override: parameters that go over the task's.
        override_json: the same, as it came.
        models: the names of model services, by role.
        deltas: whether answers are sent on as they are generated.
        capture: what is to be captured; None: nothing.
        allow_divergence: whether a breach of the exact-token law is let pass.
        max_staleness: the most versions that the oldest weights may be behind; None: no limit.
        skip_verification: whether the rollout is not to be judged.
    """

    options: agent_pb2.RolloutOptions
    limits: LoopLimits
    max_wall_s: float
    override: Mapping[str, Any]
    override_json: bytes
    models: Mapping[str, str]
    deltas: bool
    capture: tokens_pb2.CaptureOptions | None
    allow_divergence: bool
    max_staleness: int | None
    skip_verification: bool


def tools_key(tools: Sequence[responses_pb2.Tool]) -> tuple[bytes, ...]:
    """What tells a session's tools from another's."""
    return tuple(map(_tool_bytes, tools[:]))  # a slice takes half as long as an iteration


class Course:
    """What rollouts share that begin alike and are given the same tools; not to be changed.

    Attributes:
        params: the parameters of policy calls, session tools included, without input.
        items: the items before the first model call, but for the session's.
        started: their `started` event, as far as it is the same; None: not made yet.
        started_at: the environment that it names.
        begun: a model call with these parameters and items, which is how most of theirs begin;
            None: no second rollout came.
    """

    __slots__ = ("begun", "items", "params", "started", "started_at")

    def __init__(
        self, params: responses_pb2.ResponseParams, items: tuple[responses_pb2.Item, ...]
    ) -> None:
        self.params = params
        self.items = items
        self.started: rollout_pb2.RolloutEvent | None = None
        self.started_at: Where = ("", "", "")
        self.begun: model_pb2.CreateResponseRequest | None = None

    def begin(self) -> None:
        """Write what the policy's calls begin with; worth it from a second rollout on."""
        self.begun = model_pb2.CreateResponseRequest()
        fill_params(self.begun.params, self.params, self.items, None)


class Opening:
    """How a task's rollouts begin. What is given out is shared, and not to be changed.

    Attributes:
        params: the parameters of policy calls, without input and without the session's tools.
        items: the items before the first model call: the agent's own, then the task's.
    """

    __slots__ = ("_courses", "items", "params")

    def __init__(
        self, params: responses_pb2.ResponseParams, items: tuple[responses_pb2.Item, ...]
    ) -> None:
        self.params = params
        self.items = items
        self._courses: _Kept[Course] = _Kept(_TOOLS_BYTES)

    def course(
        self,
        session_tools: Sequence[responses_pb2.Tool],
        key: tuple[bytes, ...] | None = None,
    ) -> Course:
        """What rollouts share whose sessions have these tools; see `params.with_tools`.

        `key`: the tools' `tools_key`, where it is known.
        """
        if key is None:
            key = tools_key(session_tools)
        known = self._courses.get(key)
        if known is None:
            course = Course(with_tools(self.params, session_tools), self.items)
            known = self._courses.add(key, course)
        elif known.begun is None:
            known.begin()
        return known


class Readings:
    """What was read so far of the requests to one agent.

    Args:
        config: the agent's configuration.
        preamble: the items that it puts before a task's.
    """

    def __init__(self, config: AgentConfig, preamble: Sequence[responses_pb2.Item]) -> None:
        self._config = config
        self._preamble = preamble
        self._own_terms = _terms(config, agent_pb2.RolloutOptions())
        self._terms: _Kept[Terms] = _Kept(_OPTIONS_BYTES)
        self._openings: _Kept[Opening] = _Kept(_PARAMS_BYTES)

    def terms(self, options: agent_pb2.RolloutOptions | None) -> Terms:
        """The terms of a request with these options; None: it has none.

        Raises:
            MeshError: FIELD_INVALID.
        """
        if options is None:
            return self._own_terms
        key = (options.SerializeToString(),)
        known = self._terms.get(key)
        if known is None:
            known = self._terms.add(key, _terms(self._config, options))
        return known

    def opening(self, task: responses_pb2.ResponseParams, terms: Terms) -> Opening:
        """How a rollout of a task with these parameters begins under the terms.

        Raises:
            MeshError: FIELD_INVALID.
        """
        key = (terms.override_json, _params_bytes(task))
        known = self._openings.get(key)
        if known is None:
            params = merge_params(self._config.params, task, terms.override)
            opening = Opening(params, (*self._preamble, *task_items(task)))
            known = self._openings.add(key, opening)
        return known


class _Kept(Generic[V]):
    """What was last used, by what it was made from: of that, `most` bytes in all."""

    __slots__ = ("_known", "_last", "_last_key", "_most", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._known: dict[tuple[bytes, ...], V] = {}
        # The last used: it is mostly asked for again, and stands where it belongs.
        self._last_key: tuple[bytes, ...] | None = None
        self._last: V | None = None

    def get(self, key: tuple[bytes, ...]) -> V | None:
        if key == self._last_key:
            return self._last
        known = self._known.pop(key, None)
        if known is not None:
            self._known[key] = known  # last used, last forgotten
            self._last_key, self._last = key, known
        return known

    def add(self, key: tuple[bytes, ...], value: V) -> V:
        """Keep a value under a key that is not known yet; gives the value."""
        self._last_key = self._last = None  # it is not the last any more
        self._known[key] = value
        self._size += _size(key)
        while self._size > self._most:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._size -= _size(oldest)
        return value


def _size(key: tuple[bytes, ...]) -> int:
    return sum(map(len, key), _ENTRY_BYTES)


def _terms(config: AgentConfig, options: agent_pb2.RolloutOptions) -> Terms:
    asked = options.models
    for role, name in asked.items():
        check_name("options.models", role)
        check_name("options.models", name)
    return Terms(
        options,
        LoopLimits(
            max_steps=_limit("max_steps", config.max_steps, options),
            max_total_output_tokens=_limit(
                "max_total_output_tokens", config.max_total_output_tokens, options
            ),
        ),
        _wall(config, options),
        read_override(options.params_override_json),
        options.params_override_json,
        {**config.models, **asked} if asked else config.models,
        options.deltas,
        _capture(config, options),
        options.allow_token_divergence,
        options.max_staleness if options.HasField("max_staleness") else None,
        options.skip_verification,
    )


def _limit(
    key: Literal["max_steps", "max_total_output_tokens"],
    configured: int | None,
    options: agent_pb2.RolloutOptions,
) -> int | None:
    if not options.HasField(key):
        return configured
    asked: int = getattr(options, key)
    if asked < 1:
        raise _invalid(f"options.{key}", f"it must be at least 1, not {asked}")
    return asked


def _capture(
    config: AgentConfig, options: agent_pb2.RolloutOptions
) -> tokens_pb2.CaptureOptions | None:
    if not options.HasField("capture"):
        return _ALL_TOKENS if config.capture_tokens else None
    asked = options.capture
    return asked if asked.token_ids or asked.logprobs else None


def _wall(config: AgentConfig, options: agent_pb2.RolloutOptions) -> float:
    if not options.HasField("max_wall_s"):
        return config.max_wall_s
    if not 0 < options.max_wall_s < float("inf"):
        problem = f"it must be a positive number of seconds, not {options.max_wall_s}"
        raise _invalid("options.max_wall_s", problem)
    return options.max_wall_s


def _invalid(field: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        f"{field} cannot be used: {problem}",
        metadata={"field": field},
    )
