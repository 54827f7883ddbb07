"""How a trainer collects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_client.tasks import check_settings
from gymmesh_responses import dumps
from gymmesh_runtime.config import nearest

F = TypeVar("F", bound=Callable[..., Any])

_IN_STEP: Final = 64

Stale = Literal["drop", "flag"]
"""What becomes of rollouts whose weights are too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a trainer collects.

    Attributes:
        repeats: rollouts per task: the group's size. `gym-cli collect` defaults to 1, but a single
            rollout has no advantage.
        concurrency: the maximum number of rollouts in flight in each step; None: 64. For `many`,
            None means all at once.
        max_staleness: how many versions a rollout's oldest weights may be behind the newest; None:
            any number.
        stale: whether to `drop` rollouts that exceed `max_staleness` from their group, or only to
            `flag` them. They are counted in both cases.
        params: sampling parameters that override those of the tasks, as `{"temperature": 1.0}`.
        max_steps: the maximum number of model calls of a rollout; None: the agent's configured
            limit.
        max_total_output_tokens: the maximum number of answer tokens over all model calls of a
            rollout; None: the agent's configured limit.
        timeout_s: time limit of one attempt of a rollout, in seconds.
        max_attempts: the maximum number of attempts of a rollout.
        allow_token_divergence: whether a prompt that differs from the earlier tokens is only
            counted. False: the rollout fails.
        append_only: keep the tokens of a rollout's earlier calls in its prompts, even if the chat
            template would render them differently. False: follow the template, with forks.
        side_data: names of side data to capture with the tokens, such as `routed_experts`.
        side_data_path: the folder for side data. The model service of this process stores side
            data there, unless the configuration names a folder. With a remote mesh,
            `fetch_side_data` copies side data there.
        output: where rows are written, with a journal; None: rows are not written. A step N above
            1 writes `NAME.step-N.jsonl` beside it.
        resume: resume from the existing files: rollouts in these files are not collected again.
        accept_change: with `resume`, the inputs that may have changed: `config`, `version` (of
            gymmesh), `environments` (versions of environments or their verifiers).
    """

    repeats: int = 8
    concurrency: int | None = None
    max_staleness: int | None = None
    stale: Stale = "drop"
    params: dict[str, Any] = field(default_factory=dict)
    max_steps: int | None = None
    max_total_output_tokens: int | None = None
    timeout_s: float = 900.0
    max_attempts: int = 2
    allow_token_divergence: bool = False
    append_only: bool = True
    side_data: Collection[str] = ()
    side_data_path: Path | None = None
    output: Path | None = None
    resume: bool = False
    accept_change: Collection[str] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Settings by name. Raises TypeError for a name that there is not."""
        names = [one.name for one in fields(cls)]
        for name in given:
            if name not in names:
                raise TypeError(f"there is no option {name!r}; {nearest(name, names)}")
        return cls(**given)

    def __post_init__(self) -> None:
        whole_number("repeats", self.repeats)
        whole_number("max_attempts", self.max_attempts)
        for key, value, least in (
            ("concurrency", self.concurrency, 1),
            ("max_steps", self.max_steps, 1),
            ("max_total_output_tokens", self.max_total_output_tokens, 1),
            ("max_staleness", self.max_staleness, 0),
        ):
            if value is not None:
                whole_number(key, value, least)
        for key, switch in (
            ("allow_token_divergence", self.allow_token_divergence),
            ("append_only", self.append_only),
            ("resume", self.resume),
        ):
            if type(switch) is not bool:
                raise TypeError(f"{key}: must be True or False, not {switch!r}")
        for key, path in (("output", self.output), ("side_data_path", self.side_data_path)):
            if path is not None and not isinstance(path, Path):
                raise TypeError(f"{key}: must be a pathlib.Path, not {path!r}; use Path({path!r})")
        if isinstance(self.side_data, str) or not all(
            isinstance(name, str) and name for name in self.side_data
        ):
            raise TypeError(f"side_data: must be a list of names, not {self.side_data!r}")
        _check_params(self.params)
        if not isinstance(self.timeout_s, Real) or not 0 < self.timeout_s < float("inf"):
            raise ValueError(
                f"timeout_s: must be a positive number of seconds, not {self.timeout_s!r}"
            )
        if self.stale not in ("drop", "flag"):
            raise ValueError(f"stale: must be 'drop' or 'flag', not {self.stale!r}")

    @property
    def side_data_folders(self) -> tuple[Path, ...]:
        """Where side data is looked for, after the place that its reference names."""
        return () if self.side_data_path is None else (self.side_data_path,)

    @property
    def in_step(self) -> int:
        """The most rollouts in flight of a step."""
        return _IN_STEP if self.concurrency is None else self.concurrency

    def rollout_options(self, model: str) -> agent_pb2.RolloutOptions:
        """What is sent with each rollout. model: the policy's service; empty: the default."""
        options = agent_pb2.RolloutOptions(
            capture=tokens_pb2.CaptureOptions(
                token_ids=True, logprobs=True, side_data=self.side_data
            ),
            allow_token_divergence=self.allow_token_divergence,
            append_only=self.append_only,
            models={"policy": model} if model else {},
        )
        if self.params:
            options.params_override_json = dumps(self.params)
        if self.max_steps is not None:
            options.max_steps = self.max_steps
        if self.max_total_output_tokens is not None:
            options.max_total_output_tokens = self.max_total_output_tokens
        return options


def whole_number(key: str, value: object, least: int = 1) -> None:
    """Raise TypeError where an option is no whole number, ValueError where it is too small."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{key}: must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{key}: must be at least {least}, not {value}")


def seconds(key: str, value: object, *, may_be_zero: bool = True) -> None:
    """Raise TypeError where an option is no number, ValueError where it is no time to wait."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{key}: must be a number of seconds, not {value!r}")
    wait = float(value)
    if not (wait >= 0 if may_be_zero else wait > 0):
        raise ValueError(f"{key}: must be {'at least' if may_be_zero else 'above'} 0, not {value}")


def _check_params(params: object) -> None:
    """Raise TypeError or ValueError where sampling parameters are ones that a task can't have."""
    if not isinstance(params, Mapping):
        raise TypeError(f"params: must be a dictionary, not {params!r}")
    for key, sentence in check_settings(params):
        raise ValueError(f"params: {key}: {sentence}")


def with_settings(function: F) -> F:
    """Show the options of Settings in a function's signature, in place of its `**options`."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        one.replace(kind=keyword)
        for one in inspect.signature(Settings).parameters.values()
        if one.name not in signature.parameters
    ]
    shown = signature.replace(parameters=[*own, *options])
    function.__signature__ = shown  # type: ignore[attr-defined]  # as inspect reads it
    return function
