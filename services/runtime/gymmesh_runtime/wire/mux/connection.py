"""The mux to one address: opened on first use, and shared by all calls to this address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc

from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.errors import (
    MeshError,
    connection_closed,
    copy_of,
    deadline_passed,
    unavailable,
)
from gymmesh_runtime.timers import doubled_s
from gymmesh_runtime.wire.channels import OpenChannel, PeerChannel
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.frames import EXCHANGE, OFFERED
from gymmesh_runtime.wire.mux.serving import Admit
from gymmesh_runtime.wire.mux.stream import GrpcStream
from gymmesh_runtime.wire.plain import cancelled_by_caller

_log = logging.getLogger("gymmesh.mux")

_OPEN_S: Final = 10.0
#: A refusal comes at once; a server that says nothing for so long has taken the call.
_SILENCE_S: Final = 1.0
_CLOSE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
#: An exchange that broke sooner than this counts as one that could not be opened.
_SHORT_LIFE_S: Final = 1.0


class MuxConnection:
    """At most one exchange in use, to one address.

    ``exchange`` is this exchange, or None. If it is None, ``open`` creates one, or returns that the
    peer must be called by plain RPCs. ``served``: the methods that the peer can call on this side,
    by full name. ``admit`` and ``outlive_s``: see `Exchange`.
    """

    def __init__(
        self,
        channel: PeerChannel,
        served: Mapping[str, BoundMethod] | None = None,
        admit: Admit | None = None,
        outlive_s: float = 0.0,
    ) -> None:
        self.exchange: Exchange | None = None
        self._served = served
        self._admit = admit
        self._outlive_s = outlive_s
        self._channel = channel
        self._running: dict[asyncio.Task[None], Exchange] = {}  # those that leave, too
        self._opening: asyncio.Task[Exchange | None] | None = None
        self._plain_only = False
        self._failures = 0
        self._not_before = 0.0  # monotonic time of the next attempt
        self._last: MeshError | None = None

    async def open(self, timeout: float, method: str) -> Exchange | None:
        """Returns the exchange, and opens it if necessary; None: call by plain RPCs.

        Concurrent calls share one attempt to open it. After a failed attempt there is a pause,
        which grows. Calls in this pause fail at once. Raises PEER_UNAVAILABLE, and DEADLINE_PASSED
        after ``timeout`` seconds.
        """
        if self._plain_only or self._channel.retired:
            return None
        if self.exchange is not None:
            return self.exchange
        if self._opening is None:
            if self._last is not None and time.monotonic() < self._not_before:
                raise copy_of(self._last)
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        try:
            async with asyncio.timeout(timeout):
                exchange = await asyncio.shield(self._opening)
        except TimeoutError:
            raise deadline_passed(method) from None
        except asyncio.CancelledError:
            if cancelled_by_caller():
                raise
            raise connection_closed(self._channel.address) from None
        # It may have been left again in the meantime.
        return exchange if exchange is not None and exchange.usable else None

    def retire(self) -> None:
        """Leaves the address. Running calls continue; later calls don't use the mux."""
        self._leave("the address is no longer listed")

    def renew(self) -> None:
        """Reconnects for later calls, after certificates changed."""
        self._leave("the certificates have changed")

    def restore(self) -> None:
        """The address is listed again: its current server may offer the mux."""
        self._plain_only = False
        self._failures, self._last = 0, None

    async def close(self) -> None:
        """Ends all exchanges; calls in flight end with PEER_UNAVAILABLE."""
        self.exchange = None
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        for exchange in self._running.values():
            exchange.cut(lambda: connection_closed(self._channel.address))
        if self._running:
            await asyncio.wait(set(self._running), timeout=_CLOSE_S)

    async def _open(self) -> Exchange | None:
        carried = self._channel.metadata()
        held = self._channel.enter()
        call = held.raw(EXCHANGE)(metadata=carried)
        opened = False
        try:
            async with asyncio.timeout(_OPEN_S):
                await self._accepted(call)
            opened = not self._channel.retired
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
                _log.info(
                    "%s does not offer the mux (many calls over one gRPC stream); this process "
                    "sends each call separately",
                    self._channel.address,
                )
                self._plain_only = True
                return None
            raise await self._channel.failure(exc, EXCHANGE) from None
        except TimeoutError:
            self._channel.missed()
            raise self._away(f"did not answer within {_OPEN_S:.0f} s") from None
        except Exception as exc:  # the library's own, for a channel that was closed meanwhile
            raise self._away(f"{type(exc).__name__}: {exc}") from None
        finally:
            if not opened:
                call.cancel()
                self._channel.leave(held)
        return self._start(call, held) if opened else None

    async def _accepted(self, call: Any) -> None:
        """Waits until the server takes the call. Raises AioRpcError when it does not."""
        ended = asyncio.Event()
        call.add_done_callback(lambda _call: ended.set())
        metadata = asyncio.create_task(call.initial_metadata())
        try:
            await asyncio.wait({metadata}, timeout=_SILENCE_S)
            if not metadata.done() and self._channel.is_connected:
                return  # a server that says nothing before its first answer
            offered = dict(await metadata or ()).get(OFFERED)
            if offered is None:
                # Metadata come with a refusal, too, and its status a moment later.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SILENCE_S):
                        await ended.wait()
            if call.done():
                await call.wait_for_connection()  # raises its status
        finally:
            metadata.cancel()

    def _start(self, call: Any, held: OpenChannel) -> Exchange:
        address = self._channel.address
        stream = GrpcStream(call, address, opener=True)
        exchange = Exchange(
            stream,
            opener=True,
            peer=address,
            methods=self._served,
            admit=self._admit,
            outlive_s=self._outlive_s,
        )
        exchange.on_leaving = lambda: self._left(exchange)
        task = asyncio.create_task(self._run(exchange, call, held))
        self._running[task] = exchange
        task.add_done_callback(self._running.pop)
        self.exchange = exchange
        return exchange

    async def _run(self, exchange: Exchange, call: Any, held: OpenChannel) -> None:
        started = time.monotonic()
        try:
            await exchange.run()
        finally:
            self._plain_only = self._plain_only or exchange.refused
            call.cancel()
            self._channel.leave(held)
            if exchange.broken and time.monotonic() - started < _SHORT_LIFE_S:
                self._pause(
                    self._away("the last connection broke right after opening; retry later")
                )
            else:
                self._failures = 0

    def _leave(self, reason: str) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.leave(reason)

    def _left(self, exchange: Exchange) -> None:
        if self.exchange is exchange:
            self.exchange = None

    def _opened(self, task: asyncio.Task[Exchange | None]) -> None:
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()  # asked for here, as its callers may all be gone
        if isinstance(error, MeshError):
            self._pause(error)
        elif error is None:
            self._last = None
            self._channel.reached()

    def _pause(self, error: MeshError) -> None:
        self._failures += 1
        pause = doubled_s(_FIRST_PAUSE_S, self._failures, _LONGEST_PAUSE_S)
        self._not_before = time.monotonic() + pause
        self._last = error

    def _away(self, detail: str) -> MeshError:
        address = self._channel.address
        return unavailable(f"{address}: {detail}", address)
