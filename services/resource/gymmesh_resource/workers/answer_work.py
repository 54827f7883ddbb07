"""Work on a model's answer in a worker process. Separates failures that the answer causes from
others.

Invariant: `AnswerTooMuch` means that the work itself used up its processor time or its memory, or
broke its process. A busy machine, a full queue, a worker killed from outside or one that cannot
start is a `PoolError`, as ever.

The kernel counts processor time, to which a busy machine adds nothing, and ends the process when
it is used up, also inside code that holds the interpreter's lock.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from gymmesh_resource.workers.process_pool import ProcessPool, WorkerCrashed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Seconds by the clock for one of processor time: then the work is given up, which is no verdict.
PATIENCE = 20.0
# The exit status of a worker without memory left: no number that Python or a shell uses.
_NO_MEMORY = 86
_BROKEN = {
    -signal.SIGPROF: "work on the answer exceeded the limit of processor time",
    _NO_MEMORY: "work on the answer exceeded the limit of memory",
    # What libraries end a process with: a stack or an allocation that is beyond them.
    -signal.SIGSEGV: "the answer crashed the worker process",
    -signal.SIGABRT: "the answer crashed the worker process",
    -signal.SIGBUS: "the answer crashed the worker process",
    -signal.SIGFPE: "the answer crashed the worker process",
}


class AnswerTooMuch(Exception):
    """The work on the answer exceeded a limit; the text says which limit, as evidence.

    Before the answer gets a reward of 0 for it, check that the task's own answer stays within the
    limits.
    """


async def work_on_answer(
    pool: ProcessPool, function: Callable[[*Ts], T], *arguments: *Ts, cpu_s: float
) -> T:
    """The result of ``function(*arguments)`` in a worker, within `cpu_s` seconds of CPU time.

    Raises what the function raises, `AnswerTooMuch` or `PoolError`.
    """
    try:
        return await pool.run(_bounded, cpu_s, function, arguments, timeout=cpu_s * PATIENCE)
    except WorkerCrashed as error:
        if error.status in _BROKEN:
            raise AnswerTooMuch(_BROKEN[error.status]) from None
        raise


def _bounded(cpu_s: float, function: Callable[[*Ts], T], arguments: tuple[*Ts]) -> T:
    """Runs in the worker."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return function(*arguments)
    except MemoryError:
        os._exit(_NO_MEMORY)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
