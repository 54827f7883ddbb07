"""How far apart the weights are that wrote one rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_runtime.errors import MeshError


class WeightsAge:
    """Holds a rollout to `RolloutOptions.max_staleness`.

    The current version is the newest that is known: an answer of the rollout named it, or the
    model service did, when it was asked at the end.

    Args:
        limit: the most versions that the oldest may be behind; None: no limit.
    """

    __slots__ = ("_limit", "_versions")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._versions: list[int] = []

    def add(self, spans: Iterable[tokens_pb2.WeightsSpan]) -> None:
        """Take an answer's spans into account.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        if self._limit is not None:
            self._see([span.version for span in spans])

    @property
    def matters(self) -> bool:
        """Whether there is a limit, and weights to hold it against."""
        return self._limit is not None and bool(self._versions)

    def now(self, version: int) -> None:
        """Take the current version into account.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        if self._versions and self._limit is not None:
            self._see([version])

    def _see(self, versions: list[int]) -> None:
        assert self._limit is not None
        seen = [*self._versions, *versions]
        if not seen:
            return
        oldest, current = min(seen), max(seen)
        self._versions = [oldest, current]
        if current - oldest > self._limit:
            raise MeshError(
                errors_pb2.ERROR_REASON_WEIGHTS_STALE,
                f"the rollout began with weights {oldest}, and the current ones are {current}",
                metadata={
                    "oldest": str(oldest),
                    "current": str(current),
                    "max_staleness": str(self._limit),
                },
            )
