"""Where a collector's outcomes go: files with a journal (`RunOutput`), or nowhere but memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gymmesh_client.rollout_ids import rollout_id, rollout_ids
from gymmesh_client.tasks import Shard
from gymmesh_client.traces import AttemptRecording

if TYPE_CHECKING:
    from gymmesh_client.output import RunOutput

J = TypeVar("J")


class MemoryOutput:
    """An output that keeps nothing: for a trainer that uses the groups and needs no files."""

    shard: Shard | None = None
    traced = False
    outcomes = 0

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id or f"run-{uuid.uuid4().hex[:12]}"

    def rollout_id(self, task_id: str, repeat_index: int) -> str:
        """The id of a rollout of this run."""
        return rollout_id(self.run_id, task_id, repeat_index)

    def rollout_ids(self, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
        """The ids of several repeats of a task."""
        return rollout_ids(self.run_id, task_id, repeats)

    def has_outcome(self, task_id: str, repeat_index: int) -> bool:
        """False: each rollout is collected once."""
        return False

    def has_completed(self, task_id: str, repeats: int) -> bool:
        """False, as with `has_outcome`."""
        return False

    def reserving(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str], /
    ) -> Iterator[tuple[J, int]]:
        """Each job with the number of its first attempt."""
        for job in jobs:
            yield job, 1

    async def completed(self, rollout: str, attempt: int, row: bytes) -> None:
        """Keeps nothing."""

    async def failed(self, rollout: str, attempt: int, boundary: int, row: bytes) -> None:
        """Keeps nothing."""

    async def reserve(self, rollout: str, attempt: int) -> None:
        """Keeps nothing."""

    async def tried(self, rollout: str, attempt: int, boundary: int) -> None:
        """Keeps nothing."""

    async def recording(self, rollout: str, attempt: int) -> AttemptRecording:
        """There is none: `traced` is false."""
        raise NotImplementedError("a collector without files can't keep traces")

    def describe(self, **parts: Any) -> None:
        """Keeps nothing."""

    async def close(self, **ended: Any) -> None:
        """Does nothing."""


Outcomes: TypeAlias = "RunOutput | MemoryOutput"
