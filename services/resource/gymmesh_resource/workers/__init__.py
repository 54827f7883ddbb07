"""Where blocking code runs: threads, worker processes, and the queues for them."""

from gymmesh_resource.workers.answer_work import AnswerTooMuch, work_on_answer
from gymmesh_resource.workers.metrics import SANDBOX_WAIT_SECONDS
from gymmesh_resource.workers.process_pool import (
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProcessPool,
    WorkerCrashed,
    WorkerFunctionError,
    WorkerStartFailed,
    WorkerTimeout,
)
from gymmesh_resource.workers.slots import Slots
from gymmesh_resource.workers.threads import Threads, ThreadsBusy

__all__ = [
    "SANDBOX_WAIT_SECONDS",
    "AnswerTooMuch",
    "PoolClosed",
    "PoolError",
    "PoolSaturated",
    "ProcessPool",
    "Slots",
    "Threads",
    "ThreadsBusy",
    "WorkerCrashed",
    "WorkerFunctionError",
    "WorkerStartFailed",
    "WorkerTimeout",
    "work_on_answer",
]
