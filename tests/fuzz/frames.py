"""Batches of mux frames: calls as they should be, with rules of the protocol broken among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gymmesh.mux.v1 import mux_pb2
from tests.fuzz.values import Values
from tests.fuzz.wire import hurt

MIB: Final = 2**20
#: Makes a call: its full method, and a request's bytes.
MakeCall = Callable[[Values], tuple[str, bytes]]


class Talk:
    """Makes the batches of one stream, as the side that opened it."""

    def __init__(self, values: Values, make_call: MakeCall, *, large: bool) -> None:
        self._values = values
        self._make_call = make_call
        self._large = large
        self._next = 1
        self._open: list[int] = []
        self._chunked: list[int] = []

    def batches(self) -> list[bytes]:
        """What is sent, one message each."""
        values = self._values
        made = []
        for _ in range(values.random.randrange(1, 6)):
            frames = [self._frame() for _ in range(values.random.randrange(1, 5))]
            data = mux_pb2.ExchangeRequest(frames=frames).SerializeToString()
            made.append(hurt(values, data) if values.chance(0.15) else data)
        return made

    def _frame(self) -> mux_pb2.Frame:
        values = self._values
        share = values.random.random()
        if share < 0.5 or not self._open:
            return self._begin()
        if share < 0.75:
            return values.one((self._chunk, self._cancel, self._credit))()
        return self._wrong()

    def _begin(self) -> mux_pb2.Frame:
        values = self._values
        method, payload = self._make_call(values)
        number, self._next = self._next, self._next + 2
        self._open.append(number)
        begin = mux_pb2.Begin(
            method=method if values.chance(0.95) else values.text(),
            timeout_ms=values.one((0, 1, 20_000, 20_000, 20_000, 2**64 - 1)),
            payload=payload,
            credit=values.one((0, 1, 100, 2**31, 2**32 - 1)),
        )
        if values.chance(0.15):
            begin.more = True
            self._chunked.append(number)
        if values.chance(0.1):
            begin.metadata[values.text() or "a"] = values.text() * values.one((1, 200))
        return mux_pb2.Frame(call=number, begin=begin)

    def _chunk(self) -> mux_pb2.Frame:
        values = self._values
        numbers = self._chunked or self._open
        size = values.one((0, 10, 1000, MIB if self._large else 5000))
        chunk = mux_pb2.Chunk(payload=values.random.randbytes(size), last=values.chance(0.4))
        return mux_pb2.Frame(call=values.one(numbers), chunk=chunk)

    def _cancel(self) -> mux_pb2.Frame:
        return mux_pb2.Frame(call=self._values.one(self._open), cancel=mux_pb2.Cancel())

    def _credit(self) -> mux_pb2.Frame:
        messages = self._values.one((0, 1, 100, 2**31, 2**32 - 1))
        credit = mux_pb2.Credit(messages=messages)
        return mux_pb2.Frame(call=self._values.one(self._open), credit=credit)

    def _wrong(self) -> mux_pb2.Frame:
        """A frame that this side must not send, or of a call that is not open."""
        values = self._values
        number = values.one((0, 2, self._next, 1, 2**64 - 1, values.one(self._open)))
        size = MIB + 1 if self._large and values.chance(0.1) else 10
        kinds: Sequence[dict[str, Any]] = (
            {"message": mux_pb2.Message(payload=b"a" * size)},
            {"end": mux_pb2.End()},
            {"chunk": mux_pb2.Chunk(payload=b"a" * size)},
            {"begin": mux_pb2.Begin(method="a/b", payload=b"a" * size)},
            {"go_away": mux_pb2.GoAway(reason=values.text())},
            {},
        )
        return mux_pb2.Frame(call=number, **values.one(kinds))


def frames_of(data: bytes) -> list[mux_pb2.Frame]:
    """The frames that a server sent."""
    return list(mux_pb2.ExchangeResponse.FromString(data).frames)
