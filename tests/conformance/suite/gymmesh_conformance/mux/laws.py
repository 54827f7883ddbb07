"""What a server may send on an Exchange stream: mux.proto's rules for one side's frames. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymmesh.mux.v1 import mux_pb2
from gymmesh_conformance import laws
from gymmesh_conformance.errors import from_status

MIB: Final = 1 << 20


@dataclass
class _Call:
    """A call that the suite made: what may still come of it."""

    streams: bool
    credit: int
    cancelled: bool = False
    under_way: bool = False  # a message whose last chunk is still to come
    messages: int = 0


class Calls:
    """The calls of one stream. Tell it what is sent, and it says what is wrong with what comes."""

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        self._theirs: set[int] = set()

    def sent(self, frame: mux_pb2.Frame, *, streams: bool) -> None:
        """Notes a frame of the suite's; `streams`: the method that it begins has many answers."""
        kind = frame.WhichOneof("kind")
        if kind == "begin":
            self._open.setdefault(frame.call, _Call(streams, frame.begin.credit))
        elif frame.call in self._open and kind == "credit":
            self._open[frame.call].credit += frame.credit.messages
        elif frame.call in self._open and kind == "cancel":
            self._open[frame.call].cancelled = True

    def batch(self, batch: mux_pb2.ExchangeResponse) -> list[str]:
        """The problems of a batch that came."""
        if not batch.frames:
            return ["an empty batch came"]
        return [problem for frame in batch.frames for problem in self._frame(frame)]

    def _frame(self, frame: mux_pb2.Frame) -> list[str]:
        kind = frame.WhichOneof("kind")
        where = f"call {frame.call}, {kind}"
        if kind is None:
            return ["an empty frame came"]
        if kind == "go_away":
            return []
        if max(len(getattr(getattr(frame, kind), "payload", b"")), 0) > MIB:
            return [f"{where}: a payload of more than 1 MiB"]
        if kind == "begin":
            return self._begun(frame.call)
        if frame.call in self._theirs:
            return []  # the server's own call, which the suite refuses
        call = self._open.get(frame.call)
        if call is None:
            return [f"{where}: the call is not open"]
        problems = {"message": self._message, "chunk": self._chunk, "end": self._end}
        if kind not in problems:
            return [f"{where}: only the caller sends this"]
        return [f"{where}: {problem}" for problem in problems[kind](frame, call)]

    def _begun(self, number: int) -> list[str]:
        if number == 0 or number % 2 or number in self._theirs:
            return [f"the server began a call with the number {number}"]
        self._theirs.add(number)
        return []

    def _message(self, frame: mux_pb2.Frame, call: _Call) -> list[str]:
        if call.under_way:
            return ["it came before the last chunk of the one before"]
        call.messages += 1
        call.under_way = frame.message.more
        if call.streams:
            call.credit -= 1
            return ["there was no credit for it"] if call.credit < 0 else []
        return ["a unary call has one response"] if call.messages > 1 else []

    def _chunk(self, frame: mux_pb2.Frame, call: _Call) -> list[str]:
        if not call.under_way:
            return ["none was due"]
        call.under_way = not frame.chunk.last
        return []

    def _end(self, frame: mux_pb2.Frame, call: _Call) -> list[str]:
        del self._open[frame.call]
        if frame.end.HasField("status") and frame.end.status.code:
            return laws.error_problems(from_status(frame.end.status))
        if call.under_way:
            return ["it is OK, and the last chunk of a message is missing"]
        if not call.streams and not call.messages:
            return ["it is OK, and there was no response"]
        return []
