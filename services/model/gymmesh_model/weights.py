"""Which weights generate: the version that a trainer announces, followed through each call."""

from __future__ import annotations

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.errors import invalid


class WeightsClock:
    """The current version, and the versions that each running call has seen."""

    def __init__(self) -> None:
        self.version: int | None = None
        self._calls: dict[int, list[int]] = {}
        self._next = 0

    def set(self, version: int) -> int | None:
        """Takes a new version and returns the one before, None when there was none.

        Raises FIELD_INVALID for a version lower than the current one.
        """
        previous = self.version
        if previous is not None and version < previous:
            raise invalid("version", f"is {version}, but version {previous} is in place already")
        if version != previous:
            self.version = version
            for seen in self._calls.values():
                seen.append(version)
        return previous

    def follow(self, version: int) -> None:
        """Takes a version that a backend reports; one lower than the current one says nothing
        new, since the trainer may have announced the next before the backend shows it.
        """
        if self.version is None or version > self.version:
            self.set(version)

    def call(self) -> CallVersions:
        """A block in which a call runs: gives its versions, oldest first; or none known."""
        self._next += 1
        return CallVersions(self.version, self._next, self._calls)


class CallVersions:
    """A context manager; see `WeightsClock.call`."""

    __slots__ = ("_calls", "_key", "_seen")

    def __init__(self, version: int | None, key: int, calls: dict[int, list[int]]) -> None:
        self._seen: list[int] = [] if version is None else [version]
        self._key = key
        self._calls = calls

    def __enter__(self) -> list[int]:
        if self._seen:
            self._calls[self._key] = self._seen
        return self._seen

    def __exit__(self, *exc: object) -> None:
        self._calls.pop(self._key, None)


def spans(versions: list[int], output_tokens: int) -> list[tokens_pb2.WeightsSpan]:
    """The spans of a call whose swaps happened at tokens that the backend cannot tell.

    The later versions begin at the end: the whole answer counts as the oldest weights', so that
    no token passes for fresher than it may be.
    """
    return [
        tokens_pb2.WeightsSpan(version=version, first_token=output_tokens if index else 0)
        for index, version in enumerate(versions)
    ]
