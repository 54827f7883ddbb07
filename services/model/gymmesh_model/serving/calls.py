"""Calls by request_id: repeats of a call share one generation, and get its answer later, too.

An answer is kept for ten minutes, as long as it is among the last 4,096 answers and these take
at most 64 MiB together. Failures are not kept: a retry runs the call again.

The generation runs in the task of the first call, since a repeat while it runs is rare; repeats
wait for its answer. If the first call is cancelled before there is an answer, the generation ends
with it, and the repeat that has waited longest generates anew: no answer has been returned yet,
and sampling has no side effect.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import shown

CreatedResponse = model_pb2.CreateResponseResponse
WorkT = TypeVar("WorkT")

WINDOW_SECONDS: Final = 600.0
WINDOW_ANSWERS: Final = 4096
WINDOW_BYTES: Final = 64 * 1024 * 1024

_CLOSE_SECONDS: Final = 5.0


class _Running(msgspec.Struct, eq=False):
    """A generation, the task that it runs in, and the repeats that wait for it.

    cancels: cancellations of the task that came before, and have nothing to do with the call.
    """

    digest: Hashable
    task: asyncio.Task[object]
    cancels: int
    stop: str = ""
    waiters: list[asyncio.Future[CreatedResponse | None]] = []

    def end(self, why: str) -> None:
        """Stops the generation from outside; `why` is for `stopped`."""
        if not self.stop:
            self.stop = why
            self.task.cancel()

    def stopped(self) -> str:
        """Whether it was stopped by `end`, and why; takes that end's cancellation back.

        Empty when it was not, or when the task is cancelled for another reason as well.
        """
        why, self.stop = self.stop, ""
        if why and self.task.uncancel() > self.cancels:
            return ""
        return why


# An answer that is kept: the digest, the answer serialised, which takes a fraction of a message's
# memory, and when it was given.
_Done = tuple[Hashable, bytes, float]


class CallRegistry:
    """The running calls and the answers kept. `clock` gives seconds, monotonic.

    A request_id is its caller's own: see gymmesh_runtime.security.ownership.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._done: OrderedDict[str, _Done] = OrderedDict()  # the oldest first
        self._bytes = 0
        self._emptied: asyncio.Future[None] | None = None

    async def ask(
        self,
        request_id: str,
        digest: Hashable,
        work: WorkT,
        generate: Callable[[WorkT], Awaitable[CreatedResponse]],
        aborted: Callable[[WorkT], CreatedResponse],
    ) -> CreatedResponse:
        """The answer under this id: kept, under way, or generated now.

        digest: of the request; another one under the same id raises REQUEST_ID_REUSED.
        work: what the call is, for the two functions. generate: makes the answer, in the task that
        asks. aborted: the answer when `abort` stopped it. Raises whatever `generate` raises.
        """
        while True:
            if request_id in self._done:
                self._forget_old(self._clock())
                done = self._done.get(request_id)
                if done is not None:
                    _require_same(request_id, digest, done[0])
                    return _again(done[1])
            running = self._running.get(request_id)
            if running is None:
                break
            _require_same(request_id, digest, running.digest)
            waiter: asyncio.Future[CreatedResponse | None] = asyncio.Future()
            running.waiters.append(waiter)
            if (joined := await waiter) is not None:
                return joined
        task = asyncio.current_task()
        assert task is not None
        running = self._running[request_id] = _Running(digest, task, task.cancelling())
        try:
            try:
                answer = await generate(work)
            except asyncio.CancelledError:
                why = running.stopped()
                if why == "close":
                    raise MeshError(
                        errors.ERROR_REASON_DRAINING, "the model service is shutting down"
                    ) from None
                if why != "abort":
                    raise
                answer = aborted(work)
        except BaseException as error:
            self._failed(request_id, running, error)
            raise
        self._answered(request_id, running, answer)
        return answer

    def runs(self, request_id: str) -> bool:
        return request_id in self._running

    def abort(self, request_id: str) -> bool:
        """Stops a generation, whose askers then get the aborted answer; False when none runs."""
        running = self._running.get(request_id)
        if running is None:
            return False
        running.end("abort")
        return True

    async def close(self) -> None:
        """Stops all generations; their calls fail with DRAINING."""
        for running in list(self._running.values()):
            running.end("close")
        if self._running:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=_CLOSE_SECONDS)

    def _answered(self, request_id: str, running: _Running, answer: CreatedResponse) -> None:
        self._remove(request_id, running)
        kept = answer.SerializeToString()
        now = self._clock()
        self._done[request_id] = (running.digest, kept, now)
        self._bytes += len(kept)
        self._forget_old(now)
        for waiter in running.waiters:
            if not waiter.done():
                waiter.set_result(_again(kept))

    def _failed(self, request_id: str, running: _Running, error: BaseException) -> None:
        self._remove(request_id, running)
        for waiter in running.waiters:
            if waiter.done():
                continue
            if isinstance(error, Exception):
                waiter.set_exception(error)
                waiter.exception()  # seen: one that leaves right now will not look at it
            else:  # the generation is gone, so a waiter has to
                waiter.set_result(None)

    def _remove(self, request_id: str, running: _Running) -> None:
        del self._running[request_id]
        if running.stop:
            running.stopped()  # an end that came too late
        if self._emptied is not None and not self._running and not self._emptied.done():
            self._emptied.set_result(None)

    def _forget_old(self, now: float) -> None:
        """Throws out what is too old, and what is too much."""
        done = self._done
        while done:
            _, kept, given = next(iter(done.values()))
            too_much = len(done) > WINDOW_ANSWERS or self._bytes > WINDOW_BYTES
            if not too_much and given >= now - WINDOW_SECONDS:
                return
            done.popitem(last=False)
            self._bytes -= len(kept)


def _again(kept: bytes) -> CreatedResponse:
    answer = CreatedResponse.FromString(kept)
    answer.from_cache = True
    return answer


def _require_same(request_id: str, digest: Hashable, known: Hashable) -> None:
    if digest != known:
        raise MeshError(
            errors.ERROR_REASON_REQUEST_ID_REUSED,
            f"the request_id '{shown(request_id)}' was already used for a different request",
            metadata={"request_id": shown(request_id)},
        )
