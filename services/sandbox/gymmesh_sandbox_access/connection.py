"""One sandbox at its instance: opened on first use; its lease is renewed until the sandbox ends.

Invariants: a lease is only in requests, never in an error, a log line or a repr. If the sandbox or
its service is gone, the error is SANDBOX_LOST, and it is noted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import grant_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, copy_of
from gymmesh_runtime.timers import cancel_and_wait, limit_paused
from gymmesh_sandbox_access.calls import InstanceCalls
from gymmesh_sandbox_access.ends import ref_metadata

_Reason = errors_pb2.ErrorReason
#: What each says of the sandbox, in a word.
_LOST: Final = {
    _Reason.ERROR_REASON_SANDBOX_NOT_FOUND: "ended",
    _Reason.ERROR_REASON_PEER_UNAVAILABLE: "unreachable",
    _Reason.ERROR_REASON_MUX_BROKEN: "unreachable",
    _Reason.ERROR_REASON_SERVICE_NOT_FOUND: "unreachable",
    _Reason.ERROR_REASON_DEADLINE_PASSED: "unresponsive",
}
_SAID: Final = {
    "ended": "no longer exists",
    "unreachable": "can't be reached",
    "unresponsive": "did not answer in time",
}
#: With these nothing more can be done in the sandbox, or it never opened.
_FINAL: Final = frozenset(
    (
        _Reason.ERROR_REASON_SANDBOX_LOST,
        _Reason.ERROR_REASON_SANDBOX_OUT_OF_MEMORY,
        _Reason.ERROR_REASON_SANDBOX_LEASE_EXPIRED,
        _Reason.ERROR_REASON_SANDBOX_LEASE_INVALID,
        _Reason.ERROR_REASON_SANDBOX_LIMIT,
        _Reason.ERROR_REASON_SANDBOX_START_TIMEOUT,
        _Reason.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        _Reason.ERROR_REASON_SANDBOX_IMAGE_FAILED,
    )
)
# With these a lease can't be renewed any more.
_LEASE_OVER: Final = frozenset(
    (
        _Reason.ERROR_REASON_SANDBOX_NOT_FOUND,
        _Reason.ERROR_REASON_SANDBOX_LEASE_EXPIRED,
        _Reason.ERROR_REASON_SANDBOX_LEASE_INVALID,
    )
)
_CALL_S: Final = 60.0
_END_S: Final = 10.0

_LOGGER = logging.getLogger("gymmesh.sandbox")


@dataclass(frozen=True, slots=True)
class OpenedSandbox:
    """An open sandbox.

    lease: the lease that this side uses. own: whether it is the own lease. operate: the operate
    lease to pass on; None: use LendSandbox. ttl_s: seconds that each lease lasts.
    """

    calls: InstanceCalls
    ref: grant_pb2.SandboxRef
    lease: bytes = field(repr=False)
    own: bool
    ttl_s: float
    operate: grant_pb2.SandboxGrant | None = field(default=None, repr=False)
    resources: sandbox_pb2.Resources = field(default_factory=sandbox_pb2.Resources)
    user: str = ""
    workdir: str = ""


def _ignored(_: object) -> None:
    """Does nothing."""


def _unbounded(seconds: float) -> float:
    """Returns the seconds unchanged."""
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUse:
    """How the user of a sandbox takes part in its life. The functions raise nothing.

    lent: whether another service owns the sandbox.
    role: the sandbox's purpose, which errors that end the sandbox name.
    opened: called when the sandbox is open.
    ended: called when the sandbox is ended by this side.
    failed: called with each error after which the sandbox can't be used any more.
    within: given the seconds that a call may take, returns the seconds that remain for it, for
    users whose own time ends.
    """

    lent: bool = False
    role: str = ""
    opened: Callable[[grant_pb2.SandboxRef], None] = _ignored
    ended: Callable[[grant_pb2.SandboxRef], None] = _ignored
    failed: Callable[[MeshError], None] = _ignored
    within: Callable[[float], float] = _unbounded


def lost(error: MeshError, sandbox_id: str) -> MeshError:
    """The error as an error of the sandbox: SANDBOX_LOST if the sandbox or its service is gone."""
    cause = _LOST.get(error.reason)
    if cause is None:
        return error
    return MeshError(
        _Reason.ERROR_REASON_SANDBOX_LOST,
        f"the sandbox {sandbox_id or 'service'} {_SAID[cause]}: {error.message}",
        metadata={"sandbox_id": sandbox_id, "cause": error.metadata.get("cause", cause)},
    )


class SandboxConnection:
    """A sandbox for its users in this process.

    open: creates or attaches the sandbox, once. loop: the event loop of its coroutines. ended:
    called when the sandbox ends. use: the user of the sandbox.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[OpenedSandbox]],
        loop: asyncio.AbstractEventLoop,
        *,
        ended: Callable[[SandboxConnection], None],
        use: SandboxUse,
    ) -> None:
        self.loop = loop
        self._when_ended = ended
        self._open = open
        self._use = use
        self._opening: asyncio.Task[OpenedSandbox] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._ended = self._left = False

    @property
    def lent(self) -> bool:
        """Whether another service owns the sandbox. Only the owner may end it."""
        opened = self.opened
        return self._use.lent if opened is None else not opened.own

    def within(self, seconds: float) -> float:
        """The seconds that remain for a call that may take this many seconds."""
        return self._use.within(seconds)

    @property
    def opened(self) -> OpenedSandbox | None:
        """The sandbox, once it is open; None before."""
        task = self._opening
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def ready(self) -> OpenedSandbox:
        """The open sandbox, which the first call opens. If a caller is cancelled, the opening
        continues.

        Raises MeshError as CreateSandbox does; SANDBOX_NOT_FOUND after this side ended the sandbox.
        """
        if self._ended:
            raise self._was_ended()
        if self._opening is None:
            self._opening = self.loop.create_task(self._begin())
        try:
            # What a call waits here does not count against its limit; opening has its own.
            with limit_paused():
                return await asyncio.shield(self._opening)
        except MeshError as error:
            raise self._noted(error) from None
        except asyncio.CancelledError:
            if self._ended and self._opening.cancelled():
                raise self._was_ended() from None
            raise

    async def call(
        self, rpc: Callable[[Any], Any], request: Any, timeout_s: float = _CALL_S
    ) -> Any:
        """An RPC of the sandbox; the sandbox's id and lease are filled in. Raises MeshError."""
        opened = await self.ready()
        request.sandbox_id, request.lease = opened.ref.sandbox_id, opened.lease
        try:
            return await opened.calls.call(rpc, request, self.within(timeout_s))
        except MeshError as error:
            raise self._noted(error) from None

    async def stream(
        self,
        rpc: Callable[[Any], Any],
        request: Callable[[], Any],
        timeout_s: float = _CALL_S,
        *,
        may_expire: bool = False,
    ) -> AsyncGenerator[Any]:
        """A streaming RPC, like `call`; see `InstanceCalls.stream`.

        may_expire: end the stream when its time expires. Otherwise the stream then raises
        SANDBOX_LOST.
        """
        opened = await self.ready()

        def asked() -> Any:
            made = request()
            made.sandbox_id, made.lease = opened.ref.sandbox_id, opened.lease
            return made

        try:
            answers = opened.calls.stream(rpc, asked, self.within(timeout_s))
            async with aclosing(answers):
                async for answer in answers:
                    yield answer
        except MeshError as error:
            if may_expire and error.reason == _Reason.ERROR_REASON_DEADLINE_PASSED:
                return
            raise self._noted(error) from None

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs a call in the background. Only `end` waits for it, and its MeshError is dropped."""

        async def run() -> None:
            with suppress(MeshError):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def broken(self, what: str) -> MeshError:
        """SANDBOX_LOST for an answer that ended too early; the error is noted."""
        error = MeshError(
            _Reason.ERROR_REASON_SANDBOX_LOST,
            f"the sandbox {self._id()} no longer exists: {what}",
            metadata={"sandbox_id": self._id(), "cause": what},
        )
        return self._noted(error)

    async def end(self, *, let_go: bool = False) -> None:
        """Ends the sandbox if this side owns it; otherwise stops renewing its lease. Takes bounded
        time and raises no error of the service. If the service can't end the sandbox now, the
        sandbox ends with its lease.

        let_go: leave the sandbox running, for another holder of its lease.
        """
        if self._ended:
            return
        self._ended, self._left = True, let_go
        self._when_ended(self)
        opening = self._opening
        if opening is not None:
            # One that is being made is waited for: else it would be left until its lease is over.
            await asyncio.wait((opening,), timeout=_END_S)
            await cancel_and_wait(opening)
        opened = self.opened
        if opened is None or not opened.own or let_go:
            if self._background:
                # What is left of it stays in the sandbox.
                await asyncio.wait(self._background, timeout=_END_S)
            await cancel_and_wait(self._renewing, *self._background)
            return
        self._use.ended(opened.ref)
        await cancel_and_wait(self._renewing, *self._background)
        request = sandbox_pb2.EndSandboxRequest(
            sandbox_id=opened.ref.sandbox_id, lease=opened.lease
        )
        try:
            await opened.calls.call(lambda peer: peer.EndSandbox, request, _END_S)
        except MeshError as error:
            _LOGGER.warning(
                "sandbox %s could not be ended, and will end when its lease expires: %s",
                request.sandbox_id,
                error,
            )

    async def _begin(self) -> OpenedSandbox:
        opened = await self._open()
        self._renewing = asyncio.get_running_loop().create_task(self._renew(opened))
        self._use.opened(opened.ref)
        return opened

    async def _renew(self, opened: OpenedSandbox) -> None:
        """Renews the leases after a third of their time. If the instance is unreachable, tries
        again.
        """
        leases = [opened.lease]
        if opened.own and opened.operate is not None:
            leases.append(opened.operate.lease)
        pause_s = opened.ttl_s / 3
        while True:
            await asyncio.sleep(pause_s)
            for lease in leases:
                request = sandbox_pb2.RenewLeaseRequest(
                    sandbox_id=opened.ref.sandbox_id, lease=lease
                )
                try:
                    await opened.calls.call(lambda peer: peer.RenewLease, request, pause_s)
                except MeshError as error:
                    if error.reason in _LEASE_OVER:
                        self._noted(error)
                        return

    def _noted(self, error: MeshError) -> MeshError:
        found = lost(error, self._id())
        if found.reason not in _FINAL:
            return found
        found = copy_of(found, self._about())
        if not self._ended:
            self._use.failed(found)
        return found

    def _about(self) -> dict[str, str]:
        """The sandbox as metadata of an error: the receiver may not know that the sandbox was
        opened.
        """
        if (opened := self.opened) is None:
            return {}
        return ref_metadata(opened.ref, self._use.role)

    def _was_ended(self) -> MeshError:
        return MeshError(
            _Reason.ERROR_REASON_SANDBOX_NOT_FOUND,
            f"this process {'left' if self._left else 'ended'} the sandbox; open another sandbox",
            metadata={"sandbox_id": self._id()},
        )

    def _id(self) -> str:
        return opened.ref.sandbox_id if (opened := self.opened) is not None else ""
