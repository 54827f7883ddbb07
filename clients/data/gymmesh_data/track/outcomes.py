"""A collector's output whose rows are looked at once they are on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gymmesh_client.collect.outcomes import Outcomes
    from gymmesh_client.tasks import Shard
    from gymmesh_client.traces.writer import AttemptRecording

J = TypeVar("J")
OnRow = Callable[[bytes, bool], None]


class WatchedOutput:
    """Does what `output` does.

    Args:
        on_row: called with each row that was written, and whether its rollout completed.
        on_close: called once the output is closed.
    """

    def __init__(self, output: Outcomes, on_row: OnRow, on_close: Callable[[], None]) -> None:
        self._output = output
        self._on_row = on_row
        self._on_close = on_close

    @property
    def run_id(self) -> str:
        return self._output.run_id

    @property
    def shard(self) -> Shard | None:
        return self._output.shard

    @property
    def traced(self) -> bool:
        return self._output.traced

    @property
    def outcomes(self) -> int:
        return self._output.outcomes

    def rollout_ids(self, task_id: str, repeats: Iterable[int], /) -> Iterator[str]:
        return self._output.rollout_ids(task_id, repeats)

    def has_outcome(self, task_id: str, repeat_index: int, /) -> bool:
        return self._output.has_outcome(task_id, repeat_index)

    def has_completed(self, task_id: str, repeats: int, /) -> bool:
        return self._output.has_completed(task_id, repeats)

    def reserving(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str], /
    ) -> Iterator[tuple[J, int]]:
        return self._output.reserving(jobs, rollout_of)

    async def completed(self, rollout: str, attempt: int, row: bytes, /) -> None:
        await self._output.completed(rollout, attempt, row)
        self._on_row(row, True)

    async def failed(self, rollout: str, attempt: int, boundary: int, row: bytes, /) -> None:
        await self._output.failed(rollout, attempt, boundary, row)
        self._on_row(row, False)

    async def reserve(self, rollout: str, attempt: int, /) -> None:
        await self._output.reserve(rollout, attempt)

    async def tried(self, rollout: str, attempt: int, boundary: int, /) -> None:
        await self._output.tried(rollout, attempt, boundary)

    async def recording(self, rollout: str, attempt: int, /) -> AttemptRecording:
        return await self._output.recording(rollout, attempt)

    def describe(self, **parts: Any) -> None:
        self._output.describe(**parts)

    async def close(self, **ended: Any) -> None:
        try:
            await self._output.close(**ended)
        finally:
            self._on_close()
