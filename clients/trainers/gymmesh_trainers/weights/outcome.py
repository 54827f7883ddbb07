"""What came of moving weights to several endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

WeightsState = Literal["unchanged", "loaded", "unknown"]
"""An endpoint's weights: those before, the new ones, or possibly a part of each."""


@dataclass(slots=True)
class EndpointOutcome:
    """The result of a push at one endpoint.

    Attributes:
        url: the endpoint's address.
        state: the state of its weights.
        is_paused: whether the endpoint is paused, because its weights must not be used.
        cause: what failed at the endpoint; empty: nothing.
        seconds: the duration of loading.
    """

    url: str
    state: WeightsState = "unchanged"
    is_paused: bool = False
    cause: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        paused = ", paused" if self.is_paused else ""
        cause = f": {self.cause}" if self.cause else ""
        return f"{self.url} ({self.state}{paused}){cause}"


@dataclass(slots=True)
class WeightsPush:
    """The result of one push.

    Attributes:
        version: the version of the new weights.
        adapter: the adapter's name at the endpoints; empty: full weights.
        endpoints: the result at each endpoint, in the given order.
        announced: for each model service that got the version, the version before; None: it had
            none.
        unloaded: older adapters that were unloaded from all endpoints.
        in_use: older adapters that calls still use; the next push of the adapter unloads them.
    """

    version: int
    adapter: str
    endpoints: list[EndpointOutcome]
    announced: Mapping[str, int | None] = field(default_factory=dict)
    unloaded: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)


class PushFailed(Exception):
    """Not every endpoint and model service has the new weights. The text names each endpoint and
    the cause. The states are those after the push has undone what it could.

    Attributes:
        push: what was done.
        step: the step that failed: `check`, `pause`, `load`, `abort`, `announce` or `resume`.
        cause: the answer of a model service, or that calls did not end; empty: endpoints failed.
    """

    def __init__(self, push: WeightsPush, step: str, cause: str = "") -> None:
        self.push = push
        self.step = step
        self.cause = cause
        super().__init__(push, step, cause)

    def __str__(self) -> str:
        push, cause = self.push, self.cause
        what = f"adapter {push.adapter}" if push.adapter else f"weights of version {push.version}"
        told = (
            f" The version was announced to {', '.join(push.announced)}." if push.announced else ""
        )
        failed = [one for one in push.endpoints if one.cause]
        other = [one for one in push.endpoints if not one.cause]
        parts = [cause] if cause else []
        parts += [str(one) for one in failed]
        if other and not cause:
            parts.append(f"other servers: {'; '.join(str(one) for one in other)}")
        return f"pushing {what} failed at step {self.step}: {'; '.join(parts)}.{told}"
