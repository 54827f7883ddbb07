"""What a rollout is to do: read once from its request, then fixed.

The rollouts of a run come with the same options, and the repeats of a task with the same
parameters, so plans are cached by what they are read from. A cached plan is shared by thousands of
attempts, and is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.loop import LoopLimits
from gymmesh_agent.params import invalid, merge_params, read_override, task_items, with_tools
from gymmesh_runtime.text.names import check_name

_ALL_TOKENS = tokens_pb2.CaptureOptions(token_ids=True, logprobs=True)
# The most plans that are kept, and as many with a session's tools; the last used stay. A task's
# parameters may hold images, so that more of them could fill the memory.
_CACHED = 64


@dataclass(frozen=True, slots=True)
class AttemptId:
    """The identity of one attempt.

    Attributes:
        rollout_id: the rollout.
        attempt: the attempt's number, from 1.
        seed: the task's seed; None: it has none.
        run_id: the run; empty where it is not known.
    """

    rollout_id: str
    attempt: int
    seed: int | None = None
    run_id: str = ""

    @property
    def name(self) -> str:
        """`<rollout_id>/<attempt>`, with which the ids of its requests begin."""
        return f"{self.rollout_id}/{self.attempt}"


@dataclass(frozen=True, slots=True, eq=False)
class RolloutPlan:
    """What a request asks for, completed by the agent's configuration.

    Attributes:
        options: the options of the request.
        limits: the policy's limits in force.
        max_wall_s: the operator's budget in seconds.
        models: the names of model services, by role.
        deltas: whether answers are sent on as they are generated.
        capture: which tokens are to be captured; None: none.
        allow_divergence: whether a breach of the exact-token law is let pass.
        max_staleness: the most versions that the oldest weights may be behind; None: no limit.
        skip_verification: whether the rollout is not to be judged.
        params: the parameters of policy calls, without input; see `RolloutPlans.with_tools`.
        items: the items before the first model call: the agent's own, then the task's.
    """

    options: agent_pb2.RolloutOptions
    limits: LoopLimits
    max_wall_s: float
    models: Mapping[str, str]
    deltas: bool
    capture: tokens_pb2.CaptureOptions | None
    allow_divergence: bool
    max_staleness: int | None
    skip_verification: bool
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
            MeshError: FIELD_INVALID; the sentence names the field.
        """
        return self._cached_plan(options.SerializeToString(), params.SerializeToString())

    def with_tools(self, plan: RolloutPlan, tools: Sequence[responses_pb2.Tool]) -> RolloutPlan:
        """The plan with a session's tools among the parameters; see `params.with_tools`."""
        if not tools:
            return plan
        return self._cached_params(plan, tuple(tool.SerializeToString() for tool in tools))

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
            models={**config.models, **options.models},
            deltas=options.deltas,
            capture=_capture(config, options),
            allow_divergence=options.allow_token_divergence,
            max_staleness=options.max_staleness if options.HasField("max_staleness") else None,
            skip_verification=options.skip_verification,
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
        raise invalid(f"options.{key}", f"it must be at least 1, not {asked}")
    return asked


def _max_wall(config: AgentConfig, options: agent_pb2.RolloutOptions) -> float:
    if not options.HasField("max_wall_s"):
        return config.max_wall_s
    if not 0 < options.max_wall_s < float("inf"):
        problem = f"it must be a positive number of seconds, not {options.max_wall_s}"
        raise invalid("options.max_wall_s", problem)
    return options.max_wall_s


def _capture(
    config: AgentConfig, options: agent_pb2.RolloutOptions
) -> tokens_pb2.CaptureOptions | None:
    if not options.HasField("capture"):
        return _ALL_TOKENS if config.capture_tokens else None
    asked = options.capture
    return asked if asked.token_ids or asked.logprobs else None
