"""One gRPC channel per address and process, closed when its address is no longer listed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError, from_rpc_error
from gymmesh_runtime.security import Credentials
from gymmesh_runtime.wire.options import channel_options
from gymmesh_runtime.wire.unreached import Unreached

_CLOSE_GRACE_S: Final = 1.0


class OpenChannel:
    """A gRPC channel, its callables, and the number of calls in flight."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.in_flight = 0
        self._calls: dict[str, Any] = {}

    def call(self, spec: MethodSpec) -> Any:
        """The callable that sends calls of this method.

        Requests and responses are bytes. If gRPC encoded and decoded them, it would log a response
        that cannot be decoded and return None, and report a request that is too large as an
        internal error.
        """
        call = self._calls.get(spec.full_name)
        if call is None:
            call = getattr(self.channel, spec.shape)(f"/{spec.full_name}")
            self._calls[spec.full_name] = call
        return call

    def raw(self, full_name: str) -> Any:
        """The callable for a stream of bytes both ways, whose messages the caller encodes."""
        return self.channel.stream_stream(f"/{full_name}")


class PeerChannel:
    """The channel to one address. It is opened when needed, and opened again for changed
    certificates.

    A retired channel still carries calls, of peers of an instance that is no longer listed (it
    drains, or lost its lease). It is closed whenever it has no calls left. ``unreached`` records
    whether the address was reached.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        unreached: Unreached | None = None,
    ) -> None:
        self.address = address
        self._unreached = Unreached() if unreached is None else unreached
        self.retired = False
        #: How often the server may be pinged; counts from when the channel is opened next.
        self.keepalive_s: int | None = None
        self._credentials = credentials or Credentials()
        self._open: OpenChannel | None = None
        # That one, and those that still have calls on certificates of before.
        self._held: set[OpenChannel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        ready = grpc.ChannelConnectivity.READY
        held = self._open
        return held is not None and held.channel.get_state() is ready

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata that each RPC carries in addition to its own: this process's token. Raises
        MeshError.
        """
        return self._credentials.metadata(self.address)

    def enter(self) -> OpenChannel:
        """The open channel for a call. Each ``enter`` needs a ``leave`` with its result."""
        held = self._open
        if held is None:
            options = channel_options(self.keepalive_s)
            channel = self._credentials.open_channel(self.address, options)
            held = self._open = OpenChannel(channel)
            self._held.add(held)
        held.in_flight += 1
        return held

    def leave(self, held: OpenChannel) -> None:
        held.in_flight -= 1
        if self.retired or held is not self._open:
            self._close_if_idle(held)

    def retire(self) -> None:
        """The address is no longer listed."""
        self.retired = True
        if self._open is not None:
            self._close_if_idle(self._open)

    def restore(self) -> None:
        """The address is listed again."""
        self.retired = False

    def renew(self) -> None:
        """Reconnects for later calls; running calls end on the old connection."""
        held, self._open = self._open, None
        if held is not None:
            self._close_if_idle(held)

    async def close(self, grace: float | None = _CLOSE_GRACE_S) -> None:
        """Closes the channels; calls in flight get ``grace`` seconds to end."""
        self.retired = True  # a peer that is still held leaves nothing open
        closing = [held.channel.close(grace) for held in self._held]
        self._held.clear()
        self._open = None
        await asyncio.gather(*closing, *self._closing)

    async def failure(self, exc: grpc.aio.AioRpcError, method: str) -> MeshError:
        """Converts a gRPC error of a call to a MeshError. If TLS is the cause, the error says
        so.
        """
        if exc.code() is grpc.StatusCode.UNAVAILABLE and not self.is_connected:
            refused = await self._credentials.refusal(self.address, exc.details() or "")
            if refused is not None:
                return refused
            self.missed()
        return from_rpc_error(exc, self.address, method)

    def missed(self) -> None:
        """The address could not be reached."""
        self._unreached.missed(self.address)

    def reached(self) -> None:
        """The address was reached."""
        if self._unreached:
            self._unreached.reached(self.address)

    def _close_if_idle(self, held: OpenChannel) -> None:
        if held.in_flight or held not in self._held:
            return
        self._held.discard(held)
        if held is self._open:
            self._open = None
        task = asyncio.create_task(held.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
