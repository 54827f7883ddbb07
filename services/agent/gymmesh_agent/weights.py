"""How far apart the weights are that wrote one rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_runtime.errors import MeshError


class WeightsAge:
    """Knows how far apart they are, and holds a rollout to `RolloutOptions.max_staleness`.

    The current version is the newest that is known: an answer of the rollout named it, or the
    model service did, when it was asked at the end.

    Args:
        limit: the most versions that the oldest may be behind; None: no limit.
    """

    __slots__ = ("_current", "_limit", "_oldest")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._oldest: int | None = None
        self._current = 0

    def add(self, spans: Iterable[tokens_pb2.WeightsSpan]) -> None:
        """Take an answer's spans into account.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        for span in spans:
            self._see(span.version)
        self._check()

    @property
    def matters(self) -> bool:
        """Whether there is a limit, and weights to hold it against."""
        return self._limit is not None and self._oldest is not None

    @property
    def lag(self) -> int | None:
        """How many versions the oldest is behind the current one; None where none is known."""
        return None if self._oldest is None else self._current - self._oldest

    def now(self, version: int) -> None:
        """Take the current version into account.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        if self._oldest is not None:
            self._see(version)
            self._check()

    def _see(self, version: int) -> None:
        if self._oldest is None:
            self._oldest = self._current = version
        elif version < self._oldest:
            self._oldest = version
        elif version > self._current:
            self._current = version

    def _check(self) -> None:
        lag = self.lag
        if lag is not None and self._limit is not None and lag > self._limit:
            raise MeshError(
                errors_pb2.ERROR_REASON_WEIGHTS_STALE,
                f"the rollout began with weights {self._oldest}, and the current ones are "
                f"{self._current}",
                metadata={
                    "oldest": str(self._oldest),
                    "current": str(self._current),
                    "max_staleness": str(self._limit),
                },
            )
