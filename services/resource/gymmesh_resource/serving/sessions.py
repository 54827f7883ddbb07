"""The open sessions of one environment: one for each attempt, isolated from all others.

Invariant: a session is in the store from when its id is given out until it is closed, and its
environment's `close_session` runs exactly once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.serving.episode import SessionEpisode
from gymmesh_resource.serving.request_repeats import Once, digest_of, session_not_found
from gymmesh_resource.session import Session
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import may_use, owned

S = TypeVar("S")
# Seconds that a cancelled call may take to end before its session is closed without it.
_CANCEL_S = 5.0
_NO_ORDER: Final = nullcontext()


class OpenSession(Generic[S]):
    """A session with what the service keeps beside it.

    In a `with` block of it, it is not idle. `order`: held by the one call that runs, where calls
    run one after another. `owner`: the identity of the caller that opened it.
    """

    def __init__(
        self,
        session: Session[S],
        request_id: str,
        answer: resource_pb2.CreateSessionResponse,
        *,
        owner: str,
        in_order: bool,
        clock: Callable[[], float],
    ) -> None:
        self.session = session
        self.request_id = request_id
        self.answer = answer
        self.owner = owner
        self.calls = Once(session.id)
        self.episode = SessionEpisode(session.id)
        self.order: asyncio.Lock | nullcontext[None] = asyncio.Lock() if in_order else _NO_ORDER
        self.last_used = clock()
        self._clock = clock
        self._uses = 0

    @property
    def idle(self) -> bool:
        """Whether no call runs and no `with` block of it is entered."""
        return not self._uses and self.calls.idle and self.episode.idle

    def __enter__(self) -> OpenSession[S]:
        self._uses += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._uses -= 1
        self.last_used = self._clock()


#: Makes and adds the session of a request of an identity.
_Make: TypeAlias = Callable[
    [resource_pb2.CreateSessionRequest, str], Coroutine[Any, Any, OpenSession[S]]
]


class SessionStore(Generic[S]):
    """The open sessions of one environment.

    `config`: how many at a time, and for how long without a call. `in_order`: calls of a session
    run one after another. `close`: the environment's part of closing one, which must not raise.
    `opens_at_once`, `closes_at_once`: the environment's part of opening or closing one awaits
    nothing that could be cut off, so that it needs no task of its own. `works`: whether somebody
    worked in the session since this was asked last, other than by calls. `clock`: seconds that
    never go back.
    """

    def __init__(
        self,
        config: EnvironmentConfig,
        *,
        close: Callable[[Session[S]], Awaitable[None]],
        clock: Callable[[], float],
        in_order: bool,
        opens_at_once: bool,
        closes_at_once: bool,
        works: Callable[[Session[S]], Awaitable[bool]] | None = None,
    ) -> None:
        self._limit = config.session_limit
        self._limit_each = config.session_limit_each
        self._idle_s = config.session_idle_s
        self._opens_at_once = opens_at_once
        self._closes_at_once = closes_at_once
        self._in_order = in_order
        self._by_owner: Counter[str] = Counter()  # of those in _by_request
        self._close_session = close
        self._works = works
        self._clock = clock
        self._open: dict[str, OpenSession[S]] = {}
        # Each with its request's digest. In place of one that is open at once: its id.
        self._by_request: dict[str, tuple[int, asyncio.Task[OpenSession[S]] | str]] = {}
        self._closed = False
        self._emptied: asyncio.Event | None = None  # while `until_empty` waits

    def __len__(self) -> int:
        return len(self._open)

    async def create(
        self, request: resource_pb2.CreateSessionRequest, identity: str, make: _Make[S]
    ) -> OpenSession[S]:
        """The session of a request: `make` makes and adds it, unless this is a repeat.

        `make` runs in a task of its own, to outlive its caller. Raises SESSION_LIMIT, DRAINING,
        REQUEST_ID_REUSED and what `make` raises.
        """
        request_id, digest = owned(identity, request.request_id), digest_of(request)
        known = self._by_request.get(request_id)
        if known is None:
            self._refuse_full(identity)
            if self._opens_at_once:
                opened = await make(request, identity)
                self._hold(request_id, identity, digest, opened.session.id)
                return opened
            task = asyncio.get_running_loop().create_task(make(request, identity))
            self._hold(request_id, identity, digest, task)
            task.add_done_callback(partial(self._started, request_id, identity))
        elif known[0] == digest:
            if isinstance(known[1], str):
                return self._open[known[1]]
            task = known[1]
        else:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUEST_ID_REUSED,
                "The request_id already opened another task's session. Give each attempt its own "
                "request_id.",
                metadata={"request_id": request.request_id},
            )
        await asyncio.wait((task,))
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
        identity: str,
        answer: resource_pb2.CreateSessionResponse,
    ) -> OpenSession[S]:
        """Add a session that was made for a request of `identity`; it is open from here on."""
        opened = self._open[session.id] = OpenSession(
            session,
            owned(identity, request_id),
            answer,
            owner=identity,
            in_order=self._in_order,
            clock=self._clock,
        )
        return opened

    def has(self, session_id: str) -> bool:
        return session_id in self._open

    def find(self, session_id: str, identity: str = "") -> OpenSession[S] | None:
        """An open session; None also for one that another identity opened."""
        found = self._open.get(session_id)
        return found if found is not None and may_use(identity, found.owner) else None

    def get(self, session_id: str, identity: str = "") -> OpenSession[S]:
        """As `find`, of a session that is used now. Raises SESSION_NOT_FOUND."""
        found = self.find(session_id, identity)
        if found is None:
            raise session_not_found(session_id)
        found.last_used = self._clock()
        return found

    async def close(self, session_id: str, identity: str = "") -> None:
        """Close a session, if this caller has it open, and cancel the calls that run in it."""
        found = self.find(session_id, identity)
        if found is None:
            return
        self._remove(found)
        if self._closes_at_once and found.calls.idle and found.episode.idle:
            await self._close_session(found.session)
        else:
            # In a task, so that a caller that goes away does not stop it.
            await asyncio.wait((asyncio.get_running_loop().create_task(self._end(found)),))

    async def sweep(self) -> int:
        """Close the sessions that were idle for the idle time; returns how many."""
        if not self._idle_s:
            return 0
        idle = self._idle_ones()
        if self._works is not None and idle:
            working = await asyncio.gather(*(self._works(one.session) for one in idle))
            for one, works in zip(idle, working, strict=True):
                if works:
                    one.last_used = self._clock()
            idle = self._idle_ones()
        await self._close_each(idle)
        return len(idle)

    def _idle_ones(self) -> list[OpenSession[S]]:
        before = self._clock() - self._idle_s
        return [one for one in self._open.values() if one.last_used <= before and one.idle]

    def open_no_more(self) -> None:
        """Refuse new sessions; open ones go on."""
        self._closed = True

    async def until_empty(self) -> None:
        """Wait until there is no session, nor one being opened."""
        self._emptied = asyncio.Event()
        while self._by_request:
            await self._emptied.wait()
            self._emptied.clear()

    async def close_all(self) -> None:
        """Refuse new sessions and close the open ones."""
        self.open_no_more()
        known = [task for _, task in self._by_request.values() if not isinstance(task, str)]
        opening = [task for task in known if not task.done()]
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=_CANCEL_S)
        await self._close_each(list(self._open.values()))

    async def _close_each(self, sessions: Sequence[OpenSession[S]]) -> None:
        # All are removed before the first wait, so that none is used once more.
        for found in sessions:
            self._remove(found)
        await asyncio.gather(*map(self._end, sessions))

    def _remove(self, found: OpenSession[S]) -> None:
        del self._open[found.session.id]
        self._forget(found.request_id, found.owner)

    async def _end(self, found: OpenSession[S]) -> None:
        if running := found.calls.cancel() + found.episode.cancel():
            await asyncio.wait(running, timeout=_CANCEL_S)
        await self._close_session(found.session)

    def _hold(
        self,
        request_id: str,
        identity: str,
        digest: int,
        session: asyncio.Task[OpenSession[S]] | str,
    ) -> None:
        self._by_request[request_id] = (digest, session)
        if self._limit_each:
            self._by_owner[identity] += 1

    def _forget(self, request_id: str, identity: str) -> None:
        if self._by_request.pop(request_id, None) is not None and self._limit_each:
            self._by_owner[identity] -= 1
        if self._emptied is not None and not self._by_request:
            self._emptied.set()

    def _refuse_full(self, identity: str) -> None:
        if self._closed:
            raise _draining()
        if self._limit_each and self._by_owner[identity] >= self._limit_each:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_LIMIT,
                f"The caller has reached the maximum of open sessions for one caller on this "
                f"instance: {self._limit_each}.",
                metadata={"limit": str(self._limit_each)},
            )
        # Sessions that are being opened count too.
        if self._limit and len(self._by_request) >= self._limit:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_LIMIT,
                f"This instance has reached its maximum of open sessions: {self._limit}.",
                metadata={"limit": str(self._limit)},
            )

    def _started(self, request_id: str, identity: str, task: asyncio.Task[OpenSession[S]]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(request_id, identity)


def _draining() -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "The environment is shutting down and opens no new sessions.",
    )
