"""Repeats of a request: each acts once, and repeats get the first one's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Answers kept of one session; of earlier calls only the ids are kept.
KEPT_ANSWERS: Final = 128
# Failures after which nothing was done: a repeat runs anew.
_NOT_RUN = frozenset(
    {
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        errors_pb2.ERROR_REASON_SESSION_LIMIT,
        errors_pb2.ERROR_REASON_DRAINING,
    }
)


class Request(Protocol):
    """A request that may be repeated."""

    request_id: str

    def SerializeToString(self, *, deterministic: bool) -> bytes: ...


#: The method, by its request's type, and the request's id: ids are apart for each method.
_Key: TypeAlias = tuple[type, str]


class Once:
    """The calls of one session, by method and request id.

    Each call runs in a task of its own: a caller that goes away does not end it, and a repeat
    gets its answer.
    """

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        # Each with its request's digest.
        self._running: dict[_Key, tuple[int, asyncio.Task[Any]]] = {}
        self._answers: dict[_Key, tuple[int, Any]] = {}  # or the exception
        self._forgotten: set[_Key] = set()

    @property
    def idle(self) -> bool:
        """Whether no call runs."""
        return not self._running

    async def run(
        self, request: Request, act: Callable[[*Ts], Coroutine[Any, Any, T]], *arguments: *Ts
    ) -> T:
        """The answer to a request: calls `act` with the arguments, unless this is a repeat.

        Raises REQUEST_ID_REUSED for an id that came with another request, SESSION_STATE for an
        answer that is no longer kept, SESSION_NOT_FOUND if the session is closed before the call
        ends, and what `act` raises.
        """
        key, digest = (type(request), request.request_id), digest_of(request)
        if (running := self._running.get(key)) is not None:
            _compare(request, digest, running[0])
            task = running[1]
        elif (answered := self._answers.get(key)) is not None:
            _compare(request, digest, answered[0])
            kept: T | BaseException = answered[1]
            if isinstance(kept, BaseException):
                raise kept.with_traceback(None)  # without the frames of earlier callers
            return kept
        elif key in self._forgotten:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_STATE,
                "A request with this request_id was already answered, and the service no longer "
                "has the answer. For a new request, use a new request_id.",
                metadata={"session_id": self._session_id, "state": "answered"},
            )
        else:
            task = asyncio.get_running_loop().create_task(act(*arguments))
            self._running[key] = (digest, task)
            task.add_done_callback(partial(self._ended, key))
        # Unlike `await task`, this leaves the task running where its caller goes away.
        await asyncio.wait((task,))
        if task.cancelled():
            raise session_not_found(self._session_id)
        answer: T = task.result()
        return answer

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel the calls that run; returns their tasks, for the caller to wait for."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def _ended(self, key: _Key, task: asyncio.Task[Any]) -> None:
        digest, _ = self._running.pop(key)
        if task.cancelled():
            answer: Any = session_not_found(self._session_id)
        elif (error := task.exception()) is None:  # retrieved, as no caller may be left to do it
            answer = task.result()
        elif isinstance(error, MeshError) and error.reason in _NOT_RUN:
            return
        else:
            answer = error
        self._answers[key] = (digest, answer)
        if len(self._answers) > KEPT_ANSWERS:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            self._forgotten.add(oldest)


def _compare(request: Request, digest: int, known: int) -> None:
    if digest != known:
        raise MeshError(
            errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
            "The request_id was already used for a different request. Give each request its own "
            "request_id.",
            metadata={"request_id": request.request_id},
        )


def digest_of(request: Request) -> int:
    """A hash of the whole request: the same for a repeat, another for a reused id."""
    return hash(request.SerializeToString(deterministic=True))


def session_not_found(session_id: str) -> MeshError:
    """SESSION_NOT_FOUND."""
    return MeshError(
        errors_pb2.ERROR_REASON_SESSION_NOT_FOUND,
        "The session is not open on this instance. The session was closed, ended because it was "
        "idle, or never existed.",
        metadata={"session_id": session_id},
    )
