"""One gRPC channel per address and process, closed when its address is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import grpc

from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.wire.options import channel_options

_CLOSE_GRACE_S: Final = 1.0


class Line:
    """The way to one address: a channel that is opened when needed.

    A retired line still carries calls, for who holds a peer of an instance that
    is no longer listed (a draining one, or one that lost its lease); its channel
    is closed whenever no call is left on it.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.retired = False
        #: How often the server may be pinged; counts from when the channel is opened next.
        self.keepalive_s: int | None = None
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Any] = {}
        self._in_flight = 0
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether a channel is held."""
        return self._channel is not None

    @property
    def is_connected(self) -> bool:
        """Whether a connection stands."""
        ready = grpc.ChannelConnectivity.READY
        return self._channel is not None and self._channel.get_state() is ready

    def enter(self, spec: MethodSpec) -> Any:
        """Starts a call; returns what sends it. Each ``enter`` needs one ``leave``.

        Requests and responses are bytes: gRPC itself would log a response that cannot be decoded,
        and hand over None in its place, and calls a request that is too large an internal error.
        """
        self._in_flight += 1
        call = self._calls.get(spec.full_name)
        if call is None:
            call = self._calls[spec.full_name] = _multicallable(self._opened(), spec)
        return call

    def enter_raw(self, full_name: str) -> Any:
        """The same for a stream of bytes both ways, whose messages the caller packs."""
        self._in_flight += 1
        return self._opened().stream_stream(f"/{full_name}")

    def leave(self) -> None:
        """Ends a call."""
        self._in_flight -= 1
        if self.retired:
            self._close_when_idle()

    def retire(self) -> None:
        """Says that the address is no longer listed."""
        self.retired = True
        self._close_when_idle()

    async def close(self, grace: float | None) -> None:
        """Closes the channel; calls in flight get ``grace`` seconds to end."""
        self.retired = True  # whoever still holds a peer leaves nothing open
        channel = self._detach()
        if channel is not None:
            await channel.close(grace)
        await asyncio.gather(*self._closing)

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            options = channel_options(self.keepalive_s)
            self._channel = grpc.aio.insecure_channel(self.address, options=options)
        return self._channel

    def _close_when_idle(self) -> None:
        if self._in_flight == 0 and (channel := self._detach()) is not None:
            task = asyncio.create_task(channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _detach(self) -> grpc.aio.Channel | None:
        channel, self._channel = self._channel, None
        self._calls.clear()
        return channel


def _multicallable(channel: grpc.aio.Channel, spec: MethodSpec) -> Any:
    if spec.client_streaming:
        make: Any = channel.stream_stream
    else:
        make = channel.unary_stream if spec.server_streaming else channel.unary_unary
    return make(f"/{spec.full_name}")


class ChannelPool:
    """Lines by address; each address has one.

    Several channels to one target would share a connection anyway.
    """

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._keepalives: Mapping[str, int] = {}

    def get(self, address: str) -> Line:
        """Returns the line to a gRPC target."""
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = Line(address)
            line.keepalive_s = self._keepalives.get(address)
        return line

    def allow_keepalive(self, seconds: Mapping[str, int]) -> None:
        """Takes in how often servers may be pinged, by address; others say nothing about it."""
        self._keepalives = seconds
        for address, line in self._lines.items():
            line.keepalive_s = seconds.get(address)

    def retire(self, address: str) -> None:
        """Lets go of an address that is no longer listed; running calls go on."""
        line = self._lines.get(address)
        if line is not None:
            line.retire()

    def restore(self, address: str) -> None:
        """Takes an address back that is listed again."""
        line = self._lines.get(address)
        if line is not None:
            line.retired = False

    def open_addresses(self) -> list[str]:
        """The addresses with an open channel, sorted."""
        return sorted(address for address, line in self._lines.items() if line.is_open)

    async def close(self) -> None:
        """Closes every channel; calls in flight get a second to end."""
        lines = list(self._lines.values())
        self._lines.clear()
        await asyncio.gather(*(line.close(_CLOSE_GRACE_S) for line in lines))
