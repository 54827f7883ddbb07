"""A collector's output whose rows are looked at once they are on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymmesh_client.collect.outcomes import Outcomes

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

    def __getattr__(self, name: str) -> Any:
        # All that is not looked at is the output's own.
        return getattr(self._output, name)

    async def completed(self, rollout: str, attempt: int, row: bytes, /) -> None:
        await self._output.completed(rollout, attempt, row)
        self._on_row(row, True)

    async def failed(self, rollout: str, attempt: int, boundary: int, row: bytes, /) -> None:
        await self._output.failed(rollout, attempt, boundary, row)
        self._on_row(row, False)

    async def close(self, **ended: Any) -> None:
        try:
            await self._output.close(**ended)
        finally:
            self._on_close()
