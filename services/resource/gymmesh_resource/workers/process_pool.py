"""A pool of worker processes that can be killed, for code that may hang or crash.

Invariant: every call ends, with the function's result, the function's exception or a
`PoolError`; and a worker that did not answer in order is never used again.

The standard library's executors cannot end one worker. Here each has its own two pipes and does
one call at a time, so killing it affects no other call. Workers are started with a fresh
interpreter, never forked: gRPC's threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

from gymmesh_resource.workers import metrics
from gymmesh_resource.workers.process_worker import HEADER
from gymmesh_runtime.processes import write_to
from gymmesh_runtime.timers import cancel_and_wait, limit_paused

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOGGER = logging.getLogger(__name__)
_WORKER_FILE = Path(__file__).with_name("process_worker.py")
# -P: the worker's own folder must not come first in its module search path.
_WORKER_COMMAND = (sys.executable, "-P", str(_WORKER_FILE))

# Seconds: between the end of a worker's output and the end of its process. On a busy machine it
# takes long until this one hears of it, and killed before that it would have lost its status.
END_GRACE = 10.0


class PoolError(Exception):
    """The base class of a pool's own errors."""


class PoolClosed(PoolError):
    """The pool was closed before the call ended."""


class PoolSaturated(PoolError):
    """Too many calls wait for a worker, or this one waited too long; nothing was run."""


class WorkerStartFailed(PoolError):
    """No worker could be started, or its warm-up raised or took too long."""


class _EndedEarly(WorkerStartFailed):
    """A worker process ended before it was ready."""


class WorkerTimeout(PoolError):
    """The function took longer than its time, and its worker was killed."""


class WorkerCrashed(PoolError):
    """The worker process died while it ran the function (a signal, an exit, no memory).

    `status`: its exit status, or a signal's number below zero.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerFunctionError(PoolError):
    """The function raised something, or returned something, that cannot be pickled."""


class _Worker:
    """One process and the two pipes to it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.calls = 0

    async def prepare(self, warm_up: str | None, memory_limit: int | None) -> None:
        start = {
            "parent": os.getpid(),
            "path": sys.path,
            "warm_up": warm_up,
            "memory_limit": memory_limit,
        }
        try:
            kind, detail = await self.exchange(_pickled(start))
        except (EOFError, OSError):
            status = await self.end()
            raise _EndedEarly(
                f"A worker process ended (status {status}) before it was ready."
            ) from None
        if kind != "ready":
            raise WorkerStartFailed(f"The warm-up of a worker process failed:\n{detail}")

    async def exchange(self, frame: bytes) -> Any:
        """Send a frame and read the answer; EOFError or OSError when the process is gone."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None, "a pipe"
        assert stdout is not None, "a pipe"
        write_to(stdin, frame)
        await stdin.drain()
        (size,) = HEADER.unpack(await stdout.readexactly(HEADER.size))
        return pickle.loads(await stdout.readexactly(size))

    async def end(self) -> int:
        """Wait for a process whose output has ended, so that its own status is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await self.process.wait()
        return await self.kill()

    async def kill(self) -> int:
        """End the process now; gives its exit status (negative: a signal's number)."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return await self.process.wait()


class ProcessPool:
    """Runs functions in worker processes, one call per worker at a time.

    `workers`: how many processes at most; each is started when first needed.
    `warm_up`: called without arguments in each new worker before its first call (imports).
    `queue_limit`: how many calls may wait for a worker. `queue_timeout`: seconds each may wait.
    `start_timeout`: seconds for a process to start and warm up.
    `memory_limit`: bytes of address space per worker, where the system can hold it to that.
    `calls_per_worker`: a worker is replaced after so many, so that leaks stay small.

    A pool belongs to the event loop it is first used on. Close it, or use it as an async
    context manager.
    """

    def __init__(
        self,
        *,
        workers: int,
        warm_up: Callable[[], object] | None = None,
        queue_limit: int = 10_000,
        queue_timeout: float = 60.0,
        start_timeout: float = 300.0,
        memory_limit: int | None = None,
        calls_per_worker: int = 10_000,
    ) -> None:
        if workers < 1:
            raise ValueError(f"A pool needs at least one worker, not {workers}.")
        self._slots = asyncio.Semaphore(workers)
        self._workers = workers
        self._warm_up = None if warm_up is None else _reference(warm_up)
        self._queue_limit = queue_limit
        self._queue_timeout = queue_timeout
        self._start_timeout = start_timeout
        self._memory_limit = memory_limit
        self._calls_per_worker = calls_per_worker
        self._idle: list[_Worker] = []
        self._live: set[_Worker] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closed = False
        metrics.WORKERS.labels().inc(workers)
        metrics.WORKERS_BUSY.labels()
        metrics.WORKER_WAIT_SECONDS.labels()
        # 0 from the start: the first one that is lost shows as growth.
        for cause in ("cancelled", "timeout", "crashed"):
            metrics.WORKER_KILLS.labels(cause)

    async def run(
        self,
        function: Callable[[*Ts], T],
        *arguments: *Ts,
        timeout: float,
    ) -> T:
        """The result of ``function(*arguments)``, calculated in a worker.

        `function` must be found by its module and name (no lambda, no closure, not from a
        script's main module), and arguments and result must pickle. `timeout` is in seconds and
        counts from when a warm worker takes the call. What the function raises is raised here;
        otherwise a `PoolError` says what went wrong. A cancelled call kills its worker.
        """
        reference = _reference(function)
        # A mistake of the caller's is raised before a worker is taken.
        frame = _pickled((reference, arguments))
        await self._take_slot()
        worker: _Worker | None = None
        healthy = False
        metrics.WORKERS_BUSY.labels().inc()
        try:
            worker = await self._worker()
            kind, value = await self._call(worker, frame, reference, timeout)
            healthy = True
        finally:
            metrics.WORKERS_BUSY.labels().dec()
            self._give_back(worker, healthy)
        if kind == "result":
            return value  # type: ignore[no-any-return]  # whatever the function returned
        error, trace = value
        if error is None:
            raise WorkerFunctionError(f"{reference} failed in its worker:\n{trace}")
        error.add_note(f"Raised in a worker process:\n{trace}")
        raise error

    async def warm(self) -> None:
        """Start every worker that is not there yet; raises `WorkerStartFailed`."""
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(self._workers):
                await self._take_slot()
                stack.callback(self._slots.release)
            self._idle = [worker for worker in self._idle if worker.process.returncode is None]
            missing = self._workers - len(self._idle)
            # Without return_exceptions the first failure would leave the others half started.
            started = await asyncio.gather(
                *(self._start() for _ in range(missing)), return_exceptions=True
            )
            self._idle.extend(worker for worker in started if isinstance(worker, _Worker))
            for failure in started:
                if isinstance(failure, BaseException):
                    raise failure

    async def aclose(self) -> None:
        """Kill all workers, fail all calls with `PoolClosed`; safe to call twice."""
        if not self._closed:
            metrics.WORKERS.labels().dec(self._workers)
        self._closed = True
        await cancel_and_wait(*self._chores)
        await asyncio.gather(*(worker.kill() for worker in self._live))
        self._live.clear()
        self._idle.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _take_slot(self) -> None:
        """Wait for the right to use one worker."""
        if self._closed:
            raise PoolClosed("The worker pool is closed.")
        if not self._slots.locked():
            await self._slots.acquire()
            return
        if self._waiting >= self._queue_limit:
            raise PoolSaturated(
                f"The calls that wait for a worker have reached their maximum: {self._waiting}."
            )
        self._waiting += 1
        began = time.monotonic()
        try:
            with limit_paused():
                async with asyncio.timeout(self._queue_timeout):
                    await self._slots.acquire()
        except TimeoutError:
            raise PoolSaturated(f"No worker was free for {self._queue_timeout} seconds.") from None
        finally:
            self._waiting -= 1
            metrics.WORKER_WAIT_SECONDS.labels().observe(time.monotonic() - began)
        if self._closed:
            self._slots.release()
            raise PoolClosed("The worker pool was closed.")

    async def _worker(self) -> _Worker:
        """A worker that is ready: one that waits, or else a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            self._live.discard(worker)  # it died while it waited
        try:
            return await self._start()
        except _EndedEarly:
            return await self._start()  # it has done nothing yet: once more does no harm

    async def _start(self) -> _Worker:
        try:
            # In a session of its own: Ctrl-C is for the parent to handle.
            process = await asyncio.create_subprocess_exec(
                *_WORKER_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
        except OSError as error:
            raise WorkerStartFailed(f"A worker process could not be started: {error}.") from error
        worker = _Worker(process)
        self._live.add(worker)  # before it is ready: closing the pool has to find it
        try:
            async with asyncio.timeout(self._start_timeout):
                await worker.prepare(self._warm_up, self._memory_limit)
            if self._closed:
                raise PoolClosed("The worker pool was closed.")
        except BaseException as error:
            await asyncio.shield(worker.kill())
            self._live.discard(worker)
            if self._closed and isinstance(error, Exception):
                raise PoolClosed("The worker pool was closed.") from None
            if isinstance(error, TimeoutError):
                raise WorkerStartFailed(
                    f"A worker process was not ready after {self._start_timeout} seconds."
                ) from None
            raise
        return worker

    async def _call(
        self, worker: _Worker, frame: bytes, reference: str, seconds: float
    ) -> tuple[str, Any]:
        worker.calls += 1
        try:
            async with asyncio.timeout(seconds):
                answer: tuple[str, Any] = await worker.exchange(frame)
                return answer
        except asyncio.CancelledError:
            metrics.WORKER_KILLS.labels("cancelled").inc()
            raise
        except TimeoutError:
            metrics.WORKER_KILLS.labels("timeout").inc()
            raise WorkerTimeout(f"{reference} took longer than {seconds} seconds.") from None
        except Exception as error:  # a broken pipe, or an answer that does not unpickle
            ended = isinstance(error, EOFError | OSError)
            status = await (worker.end() if ended else worker.kill())
            if self._closed:
                raise PoolClosed("The worker pool was closed.") from None
            metrics.WORKER_KILLS.labels("crashed").inc()
            raise WorkerCrashed(
                f"The worker process ended (status {status}) while it ran {reference}.", status
            ) from None

    def _give_back(self, worker: _Worker | None, healthy: bool) -> None:
        """Free the slot, at once or when a worker that is no longer fit has been replaced."""
        if worker is None or self._closed:
            self._slots.release()
        elif healthy and worker.calls < self._calls_per_worker:
            self._idle.append(worker)
            self._slots.release()
        else:
            chore = asyncio.get_running_loop().create_task(self._replace(worker))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def _replace(self, worker: _Worker) -> None:
        """Kill a worker and have a warm one ready for the next call."""
        try:
            await worker.kill()
            self._live.discard(worker)
            self._idle.append(await self._start())
        except PoolError as error:
            # The next call starts a worker itself and reports why it cannot.
            _LOGGER.warning("A worker process could not be replaced: %s", error)
        finally:
            self._slots.release()


def _pickled(message: object) -> bytes:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


def _reference(function: Callable[..., object]) -> str:
    """``module:name`` of a function that another process can import."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__":
        raise ValueError(
            f"{function!r} can't run in a worker process. Use a function that is defined at the "
            "top level of a module that can be imported."
        )
    return f"{module}:{name}"
