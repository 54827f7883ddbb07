"""The deltas between a generation and the reader of its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby

from gymmesh.model.v1 import model_pb2

Delta = model_pb2.ResponseDelta


class DeltaQueue:
    """Deltas in their order. Those that wait for a slow reader are joined where they can be.

    The generation never waits, so what waits is at most the answer itself.
    """

    def __init__(self) -> None:
        self._waiting: list[Delta] = []
        self._changed = asyncio.Event()
        self._ended = False

    def put(self, delta: Delta) -> None:
        self._waiting.append(delta)
        self._changed.set()

    def end(self) -> None:
        """No more come; the reader stops once it has read all."""
        self._ended = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while True:
            taken, self._waiting = self._waiting, []
            for _, run in groupby(taken, key=_place):
                yield _joined(list(run))
            if self._waiting:
                continue
            if self._ended:
                return
            self._changed.clear()
            await self._changed.wait()


def _place(delta: Delta) -> tuple[int, str | None]:
    return delta.output_index, delta.WhichOneof("delta")


def _joined(run: list[Delta]) -> Delta:
    kind = run[0].WhichOneof("delta")
    if len(run) == 1 or kind is None:
        return run[0]
    joined = Delta(output_index=run[0].output_index)
    setattr(joined, kind, b"".join(getattr(delta, kind) for delta in run))
    return joined
