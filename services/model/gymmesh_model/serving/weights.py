"""Which weights generate: the version that a trainer announces, followed through each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import metrics
from gymmesh_runtime.errors import field_invalid


class WeightsClock:
    """The current version of a model, and the versions that each running call has seen."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.version: int | None = None
        #: Called after each change of the version.
        self.changed: Callable[[], None] = lambda: None
        self._calls: dict[int, list[int]] = {}  # by the list's id

    def set(self, version: int) -> int | None:
        """Takes a new version and returns the one before, None when there was none.

        Raises FIELD_INVALID for a version lower than the current one.
        """
        previous = self.version
        if previous is not None and version < previous:
            raise field_invalid(
                "version", f"is {version}, but version {previous} is already loaded"
            )
        if version != previous:
            self.version = version
            metrics.MODEL_WEIGHTS_VERSION.labels(self._model).set(version)
            for seen in self._calls.values():
                seen.append(version)
            self.changed()
        return previous

    def follow(self, version: int) -> None:
        """Takes a version that a backend reports; one lower than the current one says nothing
        new, since the trainer may have announced the next before the backend shows it.
        """
        if self.version is None or version > self.version:
            self.set(version)

    def begin(self) -> list[int]:
        """A call begins: gives its versions, oldest first, followed until `end`; or none known."""
        if self.version is None:
            return []
        seen = [self.version]
        self._calls[id(seen)] = seen
        return seen

    def end(self, seen: list[int]) -> None:
        """The call that `begin` gave this list to is over."""
        self._calls.pop(id(seen), None)


def spans(versions: Sequence[int], output_tokens: int) -> list[tokens_pb2.WeightsSpan]:
    """The spans of a call whose swaps happened at tokens that the backend cannot tell.

    The later versions begin at the end: the whole answer counts as the oldest weights', so that
    no token passes for fresher than it may be.
    """
    return [
        tokens_pb2.WeightsSpan(version=version, first_token=output_tokens if index else 0)
        for index, version in enumerate(versions)
    ]
