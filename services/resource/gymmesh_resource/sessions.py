"""Sessions: one per attempt of a rollout, isolated from all others.

Invariant: a session is in the store from when its id is given out until it is closed, and its
environment's `close_session` runs exactly once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cached_property
from typing import Any, Generic, TypeVar, TypeVarTuple

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.ownership import may_use, owner_of, shown

from .models import ModelAccess, Models
from .once import Once, session_closed, until_done
from .task import Task

__all__ = ["Session", "SessionStore"]

S = TypeVar("S")
Ts = TypeVarTuple("Ts")
# How long a cancelled call may take to end before the session is taken apart without it.
_CANCEL_S = 5.0


class Session(ModelAccess, Generic[S]):
    """What belongs to one attempt of a rollout.

    `state` is the environment's own object, `seed` and `random` the session's chance: two
    sessions with the same task and seed behave the same. `done`: whether the episode is over.
    """

    # Beside the attributes that an author's code may add: what always is there is set at less cost.
    __slots__ = ("_models", "done", "id", "rollout_id", "seed", "state", "task")

    def __init__(
        self,
        session_id: str,
        task: Task,
        seed: int,
        state: S,
        rollout_id: str = "",
        models: Models | None = None,
    ) -> None:
        self.id = session_id
        self.task = task
        self.seed = seed
        self.state = state
        self.rollout_id = rollout_id
        self._models = models
        self.done = False

    @cached_property
    def random(self) -> random.Random:
        """A source of chance that starts from the seed."""
        return random.Random(self.seed)

    def finish(self) -> None:
        """Declare the episode over: the model is not called again."""
        self.done = True


class Open(msgspec.Struct, Generic[S], eq=False):
    """A session with what the service keeps beside it; a `with` block of it is a use."""

    # A Struct, as Once.

    session: Session[S]
    request_id: str
    answer: resource_pb2.CreateSessionResponse
    tools: Once[resource_pb2.CallToolResponse]
    last_used: float
    clock: Callable[[], float]
    owner: str = ""  # the caller's identity that opened it
    busy: int = 0
    # Made when they are first needed, which for most sessions is never.
    _turns: Once[resource_pb2.NextTurnResponse] | None = None
    _order: asyncio.Lock | None = None

    @property
    def turns(self) -> Once[resource_pb2.NextTurnResponse]:
        """The turns taken."""
        if self._turns is None:
            self._turns = Once(self.session.id)
        return self._turns

    @property
    def order(self) -> asyncio.Lock:
        """Held by the one call that runs, where calls run one after another."""
        if self._order is None:
            self._order = asyncio.Lock()
        return self._order

    def is_idle(self) -> bool:
        """Whether no call runs, nor a `with` block of it."""
        if self.busy or self.tools.running:
            return False
        return self._turns is None or not self._turns.running

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel the calls that run; gives their tasks, to be waited for."""
        turns = [] if self._turns is None else self._turns.cancel()
        return [*self.tools.cancel(), *turns]

    def __enter__(self) -> Open[S]:
        """Not idle from here on."""
        self.busy += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.busy -= 1
        self.last_used = self.clock()


class SessionStore(Generic[S]):
    """The open sessions of one service.

    `limit`: sessions at a time, and `limit_each` those of one identity; 0 for no limit. `idle_s`:
    seconds without a call after which `sweep` closes a session, 0 for never. `close`: the
    environment's part of closing one, which must not raise. `clock`: seconds that never go back.
    """

    def __init__(
        self,
        *,
        limit: int,
        idle_s: float,
        close: Callable[[Session[S]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        limit_each: int = 0,
    ) -> None:
        self._limit = limit
        self._limit_each = limit_each
        self._held: Counter[str] = Counter()  # by identity, of those in _by_request
        self._idle_s = idle_s
        self._close_session = close
        self._clock = clock
        self._open: dict[str, Open[S]] = {}
        self._by_request: dict[str, tuple[int, asyncio.Task[Open[S]]]] = {}
        self._closed = False
        self._emptied: asyncio.Event | None = None  # while somebody waits for that

    def __len__(self) -> int:
        return len(self._open)

    async def create(
        self,
        request_id: str,
        mark: int,
        make: Callable[[*Ts], Coroutine[Any, Any, Open[S]]],
        *arguments: *Ts,
    ) -> Open[S]:
        """The session of this request; unless there is one, `make` makes and adds it. `request_id`
        is the caller's own (see gymmesh_runtime.security.ownership).

        `make` runs in a task of its own, to outlive its caller. `mark` is a hash of the request.
        Raises SESSION_LIMIT, DRAINING, REQUEST_ID_REUSED and what `make` raises.
        """
        known = self._by_request.get(request_id)
        if known is None:
            self._refuse_full(owner_of(request_id))
            task = self._start(request_id, mark, make(*arguments))
        elif known[0] == mark:
            task = known[1]
        else:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
                "The request_id opened a session for another task; give each attempt its own.",
                metadata={"request_id": shown(request_id)},
            )
        await until_done(task)
        if task.cancelled():
            raise _draining()
        try:
            return task.result()
        finally:
            # The traceback of its error holds this frame: they would hold one another, and the
            # request, until all garbage is collected.
            del task, known

    def add(
        self,
        session: Session[S],
        request_id: str,
        answer: resource_pb2.CreateSessionResponse,
        owner: str = "",
    ) -> Open[S]:
        """Take a session in that was made for a request; from here on it is open."""
        session_id, clock = session.id, self._clock
        opened = Open(session, request_id, answer, Once(session_id), clock(), clock, owner)
        self._open[session_id] = opened
        return opened

    def has(self, session_id: str, identity: str = "") -> bool:
        """Whether the session is open here, for this caller."""
        found = self._open.get(session_id)
        return found is not None and may_use(identity, found.owner)

    def find(self, session_id: str) -> Open[S]:
        """An open session. Raises SESSION_NOT_FOUND."""
        found = self._open.get(session_id)
        if found is None:
            raise session_closed(session_id)
        return found

    def using(self, session_id: str, identity: str = "") -> Open[S]:
        """An open session that is used now; in a `with` block of it, it is not idle.

        Raises SESSION_NOT_FOUND, also for a session that another identity opened.
        """
        found = self._open.get(session_id)
        if found is None or (identity and found.owner != identity):
            raise session_closed(session_id)
        found.last_used = self._clock()
        return found

    async def close(self, session_id: str, identity: str = "") -> None:
        """Close a session, if it is there for this caller, and what runs in it is cancelled."""
        found = self._take(session_id, identity)
        if found is not None:
            # A caller that goes away does not keep it from being closed.
            await until_done(asyncio.get_running_loop().create_task(self._end(found)))

    async def sweep(self) -> int:
        """Close the sessions that nobody called for the idle time; how many there were."""
        if not self._idle_s:
            return 0
        before = self._clock() - self._idle_s
        idle = [
            session_id
            for session_id, found in self._open.items()
            if found.last_used <= before and found.is_idle()
        ]
        await self._close_each(idle)
        return len(idle)

    def open_no_more(self) -> None:
        """Refuse new sessions; those there are go on."""
        self._closed = True

    async def until_empty(self) -> None:
        """Wait until there is no session, nor one being opened."""
        self._emptied = asyncio.Event()
        while self._by_request:
            await self._emptied.wait()
            self._emptied.clear()

    async def close_all(self) -> None:
        """Take no more sessions, and close those there are."""
        self.open_no_more()
        opening = [task for _, task in self._by_request.values() if not task.done()]
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=_CANCEL_S)
        await self._close_each(list(self._open))

    async def _close_each(self, session_ids: Iterable[str]) -> None:
        # All are taken out before anything is waited for: none of them is used once more.
        taken = [self._take(session_id) for session_id in session_ids]
        await asyncio.gather(*(self._end(found) for found in taken if found is not None))

    def _take(self, session_id: str, identity: str = "") -> Open[S] | None:
        """A session that nobody finds any more; None where there is none for this caller."""
        found = self._open.get(session_id)
        if found is None or (identity and found.owner != identity):
            return None
        del self._open[session_id]
        self._forget(found.request_id)
        if self._emptied is not None and not self._by_request:
            self._emptied.set()
        return found

    async def _end(self, found: Open[S]) -> None:
        if running := found.cancel():
            await asyncio.wait(running, timeout=_CANCEL_S)
        await self._close_session(found.session)

    def _forget(self, request_id: str) -> None:
        if self._by_request.pop(request_id, None) is not None and self._limit_each:
            self._held[owner_of(request_id)] -= 1

    def _refuse_full(self, owner: str) -> None:
        if self._closed:
            raise _draining()
        if self._limit_each and self._held[owner] >= self._limit_each:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_LIMIT,
                f"The caller holds {self._limit_each} sessions here, as many as it may.",
                metadata={"limit": str(self._limit_each)},
            )
        # Sessions that are being opened count too: they will be there in a moment.
        if self._limit and len(self._by_request) >= self._limit:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_LIMIT,
                f"This instance holds {self._limit} sessions, as many as it may.",
                metadata={"limit": str(self._limit)},
            )

    def _start(
        self, request_id: str, mark: int, making: Coroutine[Any, Any, Open[S]]
    ) -> asyncio.Task[Open[S]]:
        task = asyncio.get_running_loop().create_task(making)
        self._by_request[request_id] = (mark, task)
        if self._limit_each:
            self._held[owner_of(request_id)] += 1
        task.add_done_callback(lambda ended: self._started(request_id, ended))
        return task

    def _started(self, request_id: str, task: asyncio.Task[Open[S]]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(request_id)
            if self._emptied is not None:
                self._emptied.set()


def _draining() -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "The environment is shutting down and opens no more sessions.",
    )
