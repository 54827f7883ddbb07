"""How a service listens in the network of a container."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.docker.relay import (
    ContainerRelay,
    joins_networks,
    listen_in_network,
)

pytestmark = pytest.mark.skipif(not joins_networks(), reason="needs CAP_SYS_ADMIN")

_UP = "ip link set lo up 2>/dev/null; echo up; exec sleep 600"


@contextmanager
def process_of_another_network() -> Generator[int]:
    """The id of a process whose network has a loopback address alone, as a container's."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", _UP], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_listens_there_and_not_here() -> None:
    here = os.readlink("/proc/self/ns/net")
    with process_of_another_network() as pid, listen_in_network(pid, 8123) as listening:
        assert listening.getsockname() == ("127.0.0.1", 8123)
        inside = Path(f"/proc/{pid}/net/tcp").read_text()
        assert ":1FBB " in inside  # 8123
        assert ":1FBB " not in Path("/proc/self/net/tcp").read_text()
        with pytest.raises(OSError, match="in use"):
            listen_in_network(pid, 8123)
    assert os.readlink("/proc/self/ns/net") == here


def test_a_process_that_is_gone() -> None:
    with process_of_another_network() as pid:
        pass
    with pytest.raises(FileNotFoundError):
        listen_in_network(pid, 8123)


async def test_a_process_that_is_not_the_containers_is_not_joined() -> None:
    relay = ContainerRelay(sandbox_pb2.Relay(port=8123), lambda: "127.0.0.1:1")
    await relay.open()
    assert relay.path == ""
    with (
        process_of_another_network() as pid,
        pytest.raises(OSError, match="does not belong to the container"),
    ):
        await relay.join("0" * 64, pid)
    await relay.close()


async def test_the_socket_carries(tmp_path: Path) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        relay = ContainerRelay(sandbox_pb2.Relay(socket_path="/s"), lambda: f"127.0.0.1:{port}")
        await relay.open()
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, relay.path)
            await loop.sock_sendall(client, b"ping")
            client.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(client, 100) == b"got ping"
        await relay.close()
        assert not Path(relay.path).exists()
