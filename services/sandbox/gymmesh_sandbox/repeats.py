"""Calls that act once: a repeat with the same request id gets the answer of the first call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError, copy_of, unforeseen

T = TypeVar("T")

#: Answers that are kept of one method; of earlier ones only the ids are.
KEPT_ANSWERS: Final = 128
# With these nothing was done: a repeat runs anew.
_NOT_RUN: Final = frozenset(
    (errors_pb2.ERROR_REASON_SANDBOX_LIMIT, errors_pb2.ERROR_REASON_DRAINING)
)


class RepeatedRequest(Protocol):
    """A request that may be repeated."""

    request_id: str

    def SerializeToString(self, *, deterministic: bool) -> bytes: ...


class _KeptAnswer(Generic[T]):
    """A call that ended: its answer, or its error."""

    __slots__ = ("answer", "digest", "error")

    def __init__(self, digest: int, answer: T | None, error: MeshError | None) -> None:
        self.digest = digest
        self.answer = answer
        self.error = error


class _RepeatedCall(Generic[T]):
    """A running call, and how many callers wait for it."""

    __slots__ = ("callers", "digest", "may_end", "task")

    def __init__(self, digest: int, task: asyncio.Task[T], may_end: Callable[[], bool]) -> None:
        self.digest = digest
        self.task = task
        self.may_end = may_end
        self.callers = 0


class CallRepeats(Generic[T]):
    """The calls of one method, by request id.

    Each call runs in a task of its own. If a caller disconnects, the call continues, unless it has
    done nothing so far.

    Args:
        where: the full name of the method, for unexpected errors.
        keeps_errors: whether a repeat of a failed call gets the same error; False: the repeat runs
            again.
        kept: how many answers are kept; None: all, until `forget`.
    """

    def __init__(
        self, where: str, *, keeps_errors: bool = True, kept: int | None = KEPT_ANSWERS
    ) -> None:
        self._where = where
        self._keeps_errors = keeps_errors
        self._kept = kept
        self._running: dict[str, _RepeatedCall[T]] = {}
        self._answered: dict[str, _KeptAnswer[T]] = {}
        self._forgotten: set[bytes] = set()

    async def run(
        self,
        key: str,
        digest: int,
        act: Callable[[], Coroutine[Any, Any, T]],
        may_end: Callable[[], bool] = lambda: False,
    ) -> T:
        """The answer to a request. Calls `act` unless the request is a repeat.

        Args:
            key: the request id, with a prefix if ids alone are not unique.
            digest: the digest of the fields that are equal in repeats, see `digest_of`.
            act: produces the answer.
            may_end: whether `act` has done nothing so far, so that it ends with its last caller.

        Raises REQUEST_ID_REUSED, SESSION_STATE for an answer that is no longer stored, and the
        errors of `act`.
        """
        if (answered := self._answered.get(key)) is not None:
            _compare(key, digest, answered.digest)
            if answered.error is not None:
                raise copy_of(answered.error)
            assert answered.answer is not None
            return answered.answer
        if _id(key) in self._forgotten:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_STATE,
                "The request was already answered, and the service no longer stores the answer. "
                "Use a new request_id.",
                metadata={"state": "answered"},
            )
        if (running := self._running.get(key)) is not None:
            _compare(key, digest, running.digest)
        else:
            running = _RepeatedCall(digest, asyncio.get_running_loop().create_task(act()), may_end)
            self._running[key] = running
            running.task.add_done_callback(partial(self._ended, key, running))
        running.callers += 1
        try:
            # Unlike `await task`, this leaves the task running where its caller goes away.
            await asyncio.wait((running.task,))
        except asyncio.CancelledError:
            if running.callers == 1 and running.may_end():
                self._running.pop(key, None)  # a repeat runs anew
                running.task.cancel()
            raise
        finally:
            running.callers -= 1
        try:
            return running.task.result()
        finally:
            del running  # its error's traceback holds this frame

    def forget(self, key: str, *, wholly: bool = False) -> None:
        """Stops keeping an answer. `wholly`: also forgets the id, so that a call may use it
        again.
        """
        if self._answered.pop(key, None) is not None and not wholly:
            self._forgotten.add(_id(key))

    @property
    def running(self) -> Iterable[asyncio.Task[T]]:
        """The running calls."""
        return [call.task for call in self._running.values()]

    def _ended(self, key: str, call: _RepeatedCall[T], task: asyncio.Task[T]) -> None:
        if self._running.get(key) is call:
            del self._running[key]
        digest = call.digest
        if task.cancelled():
            return
        error = task.exception()  # retrieved, as no caller may be left to do it
        if error is None:
            self._answered[key] = _KeptAnswer(digest, task.result(), None)
        elif not self._keeps_errors or (isinstance(error, MeshError) and error.reason in _NOT_RUN):
            return
        else:
            typed = error if isinstance(error, MeshError) else unforeseen(error, self._where)
            self._answered[key] = _KeptAnswer(digest, None, typed)
        if self._kept is not None and len(self._answered) > self._kept:
            self.forget(next(iter(self._answered)))


def digest_of(request: RepeatedRequest, *, without: str = "lease") -> int:
    """A hash of a request: a repeat has the same hash, even with another lease of the sandbox."""
    copy: Any = type(request)()
    copy.CopyFrom(request)
    if without:
        copy.ClearField(without)
    return hash(copy.SerializeToString(deterministic=True))


def _id(key: str) -> bytes:
    # Ids that callers choose may be long, and these are kept for the life of a sandbox.
    return hash(key).to_bytes(8, "little", signed=True)


def _compare(key: str, digest: int, known: int) -> None:
    if digest != known:
        raise MeshError(
            errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
            "The request_id was already used for a different request. Use a new request_id.",
            metadata={"request_id": key.rpartition("\0")[2]},
        )
