"""A connection that is carried further and loses one end while bytes wait, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, TypeAlias

import pytest
import uvloop

from gymmesh_sandbox.backends.connections import ConnectionServer, carry

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def connected() -> tuple[Streams, socket.socket]:
    """One end of a connection as streams, and the other end."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    return await asyncio.open_connection(sock=here), there


@LOOPS
@pytest.mark.parametrize("ended", [False, True], ids=["more may come", "all was sent"])
def test_the_other_end_is_gone_while_bytes_wait(run: Any, ended: bool) -> None:
    """The transport is closed, and whoever reads there is not woken yet."""

    async def carried() -> None:
        near, program = await connected()
        far, _service = await connected()
        loop = asyncio.get_running_loop()
        with program, _service:
            await loop.sock_sendall(program, b"a body")
            if ended:
                program.shutdown(socket.SHUT_WR)
            first = await near[0].readexactly(1)
            assert first == b"a"
            far[1].transport.abort()
            async with asyncio.timeout(20):
                await carry(near, far)
            near[1].close()

    run(carried())


@LOOPS
def test_what_is_ended_while_both_sides_are_full_is_closed(run: Any) -> None:
    """Neither side reads any more, so what is on the way is not waited for."""

    async def carried() -> None:
        near, program = await connected()
        far, service = await connected()
        with program, service:
            carrying = asyncio.create_task(carry(near, far))
            for end in (program, service):
                end.setblocking(False)
            while not (_is_full(near[1]) and _is_full(far[1])):
                for end in (program, service):
                    with contextlib.suppress(BlockingIOError):
                        end.send(b"x" * 65536)
                await asyncio.sleep(0)
            carrying.cancel()
            await asyncio.wait([carrying])
            assert carrying.cancelled()
            async with asyncio.timeout(20):
                for _, writer in (near, far):
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()

    run(carried())


@LOOPS
def test_a_connection_on_which_nothing_comes_is_a_timeout(run: Any) -> None:
    async def carried() -> None:
        near, program = await connected()
        far, service = await connected()
        with program, service:
            async with asyncio.timeout(20):
                with pytest.raises(TimeoutError):
                    await carry(near, far, 0.01)
            assert near[1].transport.is_closing()
            assert far[1].transport.is_closing()

    run(carried())


def _is_full(writer: asyncio.StreamWriter) -> bool:
    return writer.transport.get_write_buffer_size() > 0


@LOOPS
def test_a_connection_that_was_ended_leaves_no_error_to_the_loop(run: Any) -> None:
    async def served() -> list[str]:
        troubles: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: troubles.append(str(context)))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far, service = await connected()
            with service:
                await reader.readexactly(1)
                far[1].transport.abort()
                await carry((reader, writer), far)

        server = ConnectionServer(serve)
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        await server.open(listening)
        async with asyncio.timeout(20):
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"a body")
                assert await reader.read() == b""
                writer.close()
        await server.close()
        return troubles

    assert run(served()) == []
