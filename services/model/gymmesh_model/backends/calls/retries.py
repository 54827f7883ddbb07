"""What a call's retries were, and the time that they took."""

from __future__ import annotations

from collections.abc import Iterator

from gymmesh.model.v1 import retries_pb2
from gymmesh_runtime.errors import MeshError


class RetryLog:
    """The retries of one call. seconds: from its first try until its last was sent."""

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.seconds = 0.0

    def note(self, error: MeshError, seconds: float) -> None:
        """One more try, after `error`; `seconds` as above."""
        self._counts[error.reason_name] = self._counts.get(error.reason_name, 0) + 1
        self.seconds = seconds

    def messages(self) -> Iterator[retries_pb2.CallRetries]:
        """How often the endpoint was asked again, by reason, in the order of the first of each."""
        for reason, count in self._counts.items():
            yield retries_pb2.CallRetries(reason=reason, count=count)
