"""Calls by request_id: one generation for all who ask under the same id, and its answer for later.

An answer is kept for ten minutes, as long as it is among the last 4,096 and together they
take at most 64 MiB. Failures are not kept: a retry tries anew. A generation whose
last asker is gone is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.errors import MeshError

Answer = model_pb2.CreateResponseResponse

WINDOW_SECONDS: Final = 600.0
WINDOW_ANSWERS: Final = 4096
WINDOW_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Running:
    digest: bytes
    task: asyncio.Task[Answer]
    askers: int = 0


@dataclass(frozen=True, slots=True)
class _Done:
    digest: bytes
    answer: Answer
    size: int
    ended: float


class CallTable:
    """The running calls and the answers kept. `clock` gives seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._done: OrderedDict[str, _Done] = OrderedDict()
        self._bytes = 0
        self._aborting: set[str] = set()

    async def ask(
        self,
        request_id: str,
        digest: bytes,
        generate: Callable[[], Awaitable[Answer]],
        aborted: Callable[[], Answer],
    ) -> Answer:
        """The answer under this id: kept, under way, or generated now.

        digest: of the request; another one under the same id raises REQUEST_ID_REUSED.
        generate: makes the answer; runs in a task of its own. aborted: the answer when
        `abort` stopped it. Raises whatever `generate` raises.
        """
        self._forget_old()
        done = self._done.get(request_id)
        if done is not None:
            _require_same(request_id, digest, done.digest)
            return _again(done.answer)
        running = self._running.get(request_id)
        if running is not None:
            _require_same(request_id, digest, running.digest)
            return _again(await self._wait(request_id, running))
        task = asyncio.ensure_future(self._generate(request_id, generate, aborted))
        running = self._running[request_id] = _Running(digest, task)
        task.add_done_callback(lambda ended: self._end(request_id, running, ended))
        return await self._wait(request_id, running)

    def runs(self, request_id: str) -> bool:
        """Whether a generation runs under this id."""
        running = self._running.get(request_id)
        return running is not None and not running.task.done()

    def abort(self, request_id: str) -> bool:
        """Stops a generation, whose askers then get the aborted answer; False when none runs."""
        running = self._running.get(request_id)
        if running is None or running.task.done():
            return False
        self._aborting.add(request_id)
        running.task.cancel()
        return True

    async def close(self) -> None:
        """Stops all generations; who waits for one gets DRAINING."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    async def _generate(
        self,
        request_id: str,
        generate: Callable[[], Awaitable[Answer]],
        aborted: Callable[[], Answer],
    ) -> Answer:
        try:
            return await generate()
        except asyncio.CancelledError:
            if request_id in self._aborting:
                return aborted()
            raise

    async def _wait(self, request_id: str, running: _Running) -> Answer:
        running.askers += 1
        try:
            return await asyncio.shield(running.task)
        except asyncio.CancelledError:
            if running.task.cancelled() and not _being_cancelled():
                raise MeshError(
                    errors.ERROR_REASON_DRAINING, "the model service is shutting down"
                ) from None
            raise
        finally:
            running.askers -= 1
            if not running.askers and not running.task.done():
                # Off the table at once, so that a new call does not join a dying one.
                self._remove(request_id, running)
                running.task.cancel()

    def _end(self, request_id: str, running: _Running, task: asyncio.Task[Answer]) -> None:
        self._remove(request_id, running)
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        done = _Done(running.digest, answer, answer.ByteSize(), self._clock())
        self._done[request_id] = done
        self._bytes += done.size
        while len(self._done) > WINDOW_ANSWERS or self._bytes > WINDOW_BYTES:
            self._drop_oldest()

    def _remove(self, request_id: str, running: _Running) -> None:
        if self._running.get(request_id) is running:
            del self._running[request_id]
            self._aborting.discard(request_id)

    def _forget_old(self) -> None:
        limit = self._clock() - WINDOW_SECONDS
        while self._done and next(iter(self._done.values())).ended < limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        with contextlib.suppress(KeyError):
            self._bytes -= self._done.popitem(last=False)[1].size


def _again(answer: Answer) -> Answer:
    copy = Answer()
    copy.CopyFrom(answer)
    copy.from_cache = True
    return copy


def _require_same(request_id: str, digest: bytes, known: bytes) -> None:
    if digest != known:
        raise MeshError(
            errors.ERROR_REASON_REQUEST_ID_REUSED,
            f"the request_id '{request_id}' was used for another request before",
            metadata={"request_id": request_id},
        )


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
