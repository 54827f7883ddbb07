"""One Exchange stream to the server under test: frames go up, and what comes is kept by call."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc

from gymmesh.mux.v1 import mux_pb2
from gymmesh_conformance.errors import CallError, from_rpc_error
from gymmesh_conformance.mux.laws import Calls

METHOD: Final = "/gymmesh.mux.v1.MuxService/Exchange"
_END_S: Final = 10.0


class Exchange:
    """A stream. `streams` says of a method whether it has many responses; `metadata` is the
    stream's own. `close` it in any case.

    `error` is how it ended, where not well; `problems` what came that the contract forbids.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        streams: Callable[[str], bool],
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        untyped: Any = channel  # without serializers it takes and gives bytes
        self._call: Any = untyped.stream_stream(METHOD)(metadata=tuple(metadata))
        self._streams = streams
        self._calls = Calls()
        self._kept: dict[int, deque[mux_pb2.Frame]] = defaultdict(deque)
        self._came = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self.ended = False
        self.error: CallError | None = None
        self.problems: list[str] = []

    async def greeting(self, timeout: float) -> dict[str, str]:
        """The server's first metadata. Raises TimeoutError, CallError."""
        try:
            async with asyncio.timeout(timeout):
                return {str(key): str(value) for key, value in await self._call.initial_metadata()}
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def send(self, frames: Sequence[mux_pb2.Frame]) -> None:
        """Sends a batch. Where the stream has ended, nothing is sent."""
        await self.send_bytes(mux_pb2.ExchangeRequest(frames=frames).SerializeToString(), frames)

    async def send_bytes(self, data: bytes, frames: Sequence[mux_pb2.Frame] = ()) -> None:
        """Sends what need be no batch; `frames`: those in it."""
        for frame in frames:
            self._calls.sent(frame, streams=self._streams(frame.begin.method))
        try:
            await self._call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await asyncio.wait({self._reader}, timeout=_END_S)  # which knows why

    async def next(self, call: int, timeout: float) -> mux_pb2.Frame | None:
        """The next frame of a call (0: of none); None when none comes in time, or at the end."""
        end = asyncio.get_running_loop().time() + timeout
        while not self._kept[call]:
            if self.ended:
                return None
            self._came.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._came.wait()
            except TimeoutError:
                return None
        return self._kept[call].popleft()

    async def finish(self, timeout: float) -> bool:
        """Says no more; whether the server ended the stream in time."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it has ended already
            await self._call.done_writing()
        return await self.wait(timeout)

    async def wait(self, timeout: float) -> bool:
        """Waits for the stream's end; whether it came in time."""
        await asyncio.wait({self._reader}, timeout=timeout)
        return self.ended

    async def close(self) -> None:
        """Breaks the stream off; nothing happens when it has ended."""
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for data in self._call:
                await self._take(mux_pb2.ExchangeResponse.FromString(data))
        except grpc.aio.AioRpcError as error:
            self.error = from_rpc_error(error)
        finally:
            self.ended = True
            self._came.set()

    async def _take(self, batch: mux_pb2.ExchangeResponse) -> None:
        self.problems += self._calls.batch(batch)
        for frame in batch.frames:
            # A server may call, too; the suite serves nothing.
            if frame.WhichOneof("kind") == "begin":
                await self._refuse(frame.call)
            else:
                self._kept[frame.call].append(frame)
        self._came.set()

    async def _refuse(self, number: int) -> None:
        refused = mux_pb2.Frame(call=number)
        refused.end.status.code = grpc.StatusCode.UNIMPLEMENTED.value[0]
        await self.send([refused])
