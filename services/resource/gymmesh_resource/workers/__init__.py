"""Where blocking code runs: threads, worker processes, and the queues for them."""

from .answer_work import AnswerTooMuch, work_on_answer
from .process_pool import (
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProcessPool,
    WorkerCrashed,
    WorkerFunctionError,
    WorkerStartFailed,
    WorkerTimeout,
)
from .slots import Places, waiting_for_place
from .threads import Threads, ThreadsBusy, ThreadsLost

__all__ = [
    "AnswerTooMuch",
    "Places",
    "PoolClosed",
    "PoolError",
    "PoolSaturated",
    "ProcessPool",
    "Threads",
    "ThreadsBusy",
    "ThreadsLost",
    "WorkerCrashed",
    "WorkerFunctionError",
    "WorkerStartFailed",
    "WorkerTimeout",
    "waiting_for_place",
    "work_on_answer",
]
