"""What a sandbox of bubblewrap reaches, and how its servers are reached."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.unit.sandbox_bubblewrap.boxes import box, collected, shell

_SERVER = b"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.send_header("X-Path", self.path)
        self.send_header("X-Seen", self.headers.get("X-Sent", ""))
        self.end_headers()
        self.wfile.write(self.command.encode() + b":" + body)
    do_GET = do_POST = answer
server = http.server.HTTPServer(("127.0.0.1", 8080), Handler)
print("up", flush=True)
server.serve_forever()
"""
_CLIENT = b"""
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(b"ping"); s.shutdown(socket.SHUT_WR)
    print(s.makefile().read())
"""


@asynccontextmanager
async def serving(sandbox: RunningSandbox) -> AsyncGenerator[None]:
    argv = process_pb2.Argv(words=(b"python3", b"-c", _SERVER))
    process = await sandbox.start(process_pb2.ProcessSpec(argv=argv))
    output = process.output()
    assert (await anext(output))[1] == b"up\n"
    try:
        yield
    finally:
        await process.signal(signal.SIGKILL, descendants=True)


async def test_a_server_in_the_sandbox_is_called(sandbox: RunningSandbox) -> None:
    async with serving(sandbox):
        request = sandbox_pb2.CallPortRequest(
            port=8080,
            method="POST",
            path="/a%20b?c=d",
            headers=[sandbox_pb2.HttpHeader(name="X-Sent", value=b"one")],
            body=b"body",
        )
        answer = await sandbox.call_port(request, 1000)
        headers = {header.name: header.value for header in answer.headers}
        assert (answer.status, answer.body) == (302, b"POST:body")
        assert (headers["X-Path"], headers["X-Seen"]) == (b"/a%20b?c=d", b"one")
        with pytest.raises(MeshError) as caught:
            await sandbox.call_port(request, 3)
        assert caught.value.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE


async def test_a_port_where_nothing_listens(sandbox: RunningSandbox) -> None:
    with pytest.raises(MeshError, match="SANDBOX_PORT_UNREACHABLE"):
        await sandbox.call_port(sandbox_pb2.CallPortRequest(port=8081), 1000)


@asynccontextmanager
async def echo() -> AsyncGenerator[str]:
    """A server that answers with what it got, once that ends; its address."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def test_a_relay_carries_to_one_service(opened: BubblewrapBackend) -> None:
    relay = sandbox_pb2.Relay(socket_path="/run/mesh/agent.sock", service="s", name="n")
    client = process_pb2.Argv(words=(b"python3", b"-c", _CLIENT, b"/run/mesh/agent.sock"))
    async with echo() as address:
        fields = {"network": sandbox_pb2.Network(relay=relay), "relay": lambda: address}
        async with box(opened, **fields) as sandbox:
            for name in ("s0", "s1"):
                process = await sandbox.start(process_pb2.ProcessSpec(argv=client))
                _, wrote, said = await collected(process)
                assert wrote == b"got ping\n", said
                await sandbox.snapshot(name)  # the sandbox is made anew, its relay as well
            async with box(opened, name="b-2", root="s1", **fields) as fork:
                _, wrote, said = await collected(
                    await fork.start(process_pb2.ProcessSpec(argv=client))
                )
                assert wrote == b"got ping\n", said
            _, _, said = await shell(sandbox, "cat < /dev/null > /dev/tcp/127.0.0.1/1")
            assert said


_TCP_CLIENT = b"""
import socket
with socket.create_connection(("127.0.0.1", 8123), 30) as s:
    s.sendall(b"ping"); s.shutdown(socket.SHUT_WR)
    print(s.makefile().read())
"""


async def test_a_relay_at_a_port(opened: BubblewrapBackend) -> None:
    assert opened.capabilities.relay_ports
    relay = sandbox_pb2.Relay(port=8123, service="s", name="n")
    client = process_pb2.Argv(words=(b"python3", b"-c", _TCP_CLIENT))
    async with echo() as address:
        fields = {"network": sandbox_pb2.Network(relay=relay), "relay": lambda: address}
        # Each has a network of its own, and so the same port.
        async with box(opened, **fields) as one, box(opened, name="b-2", **fields) as two:
            for sandbox in (one, two):
                process = await sandbox.start(process_pb2.ProcessSpec(argv=client))
                _, wrote, said = await collected(process)
                assert wrote == b"got ping\n", said
            await one.snapshot("s0")  # the sandbox is made anew, its relay as well
            _, wrote, said = await collected(await one.start(process_pb2.ProcessSpec(argv=client)))
            assert wrote == b"got ping\n", said
            _, _, said = await shell(one, "cat < /dev/null > /dev/tcp/127.0.0.1/1")
            assert said


async def test_a_relay_without_a_service_ends_connections(opened: BubblewrapBackend) -> None:
    def nobody() -> str:
        raise MeshError(Reason.ERROR_REASON_SERVICE_NOT_FOUND, "there is none")

    relay = sandbox_pb2.Relay(socket_path="/tmp/s", service="s", name="n")
    async with box(opened, network=sandbox_pb2.Network(relay=relay), relay=nobody) as sandbox:
        client = process_pb2.Argv(words=(b"python3", b"-c", _CLIENT, b"/tmp/s"))
        _, wrote, said = await collected(await sandbox.start(process_pb2.ProcessSpec(argv=client)))
        assert wrote == b"\n" or b"Broken" in said or b"reset" in said


_FETCH = b"""
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=60) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


@asynccontextmanager
async def web() -> AsyncGenerator[int]:
    """An HTTP server of this machine; its port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_listed_hosts_are_reached_through_a_proxy(opened: BubblewrapBackend) -> None:
    assert sandbox_pb2.NETWORK_KIND_HOSTS in opened.capabilities.networks

    async def fetch(sandbox: RunningSandbox, url: str, **env: str) -> bytes:
        argv = process_pb2.Argv(words=(b"python3", b"-c", _FETCH, url.encode()))
        process = await sandbox.start(process_pb2.ProcessSpec(argv=argv, env=env))
        _, wrote, said = await collected(process)
        return wrote + said

    async with web() as port, web() as other:
        listed = sandbox_pb2.AllowedHost(name="127.0.0.1", ports=[port], private=True)
        network = sandbox_pb2.Network(hosts=sandbox_pb2.AllowedHosts(hosts=[listed]))
        async with box(opened, network=network) as sandbox:
            for name in ("s0", "s1"):
                assert await fetch(sandbox, f"http://127.0.0.1:{port}/") == b"here\n"
                await sandbox.snapshot(name)  # the sandbox is made anew, its proxy as well
            async with box(opened, name="b-2", root="s1", network=network) as fork:
                assert await fetch(fork, f"http://127.0.0.1:{port}/") == b"here\n"
            refused = await fetch(sandbox, f"http://127.0.0.1:{other}/")
            assert refused.startswith(b"403 ")
            assert (await fetch(sandbox, "http://name.test/")).startswith(b"403 ")
            # Without the proxy there is nothing but the sandbox's own loopback address.
            assert b"refused" in await fetch(sandbox, f"http://127.0.0.1:{port}/", http_proxy="")
            _, _, said = await shell(sandbox, "cat < /dev/null > /dev/tcp/192.0.2.1/80")
            assert said
            async with serving(sandbox):
                answered = await fetch(sandbox, "http://localhost:8080/")
                assert b"refused" not in answered
                assert not answered.startswith(b"403")


async def test_an_open_network_is_the_machines(opened: BubblewrapBackend) -> None:
    code = b"import socket,sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
    code += b"s.sendall(b'ping'); s.shutdown(1); print(s.makefile().read())"
    async with echo() as address:
        words = (b"python3", b"-c", code, address.rpartition(":")[2].encode())
        network = sandbox_pb2.Network(open=sandbox_pb2.OpenNetwork())
        async with box(opened, network=network) as sandbox:
            argv = process_pb2.Argv(words=words)
            _, wrote, said = await collected(
                await sandbox.start(process_pb2.ProcessSpec(argv=argv))
            )
            assert wrote == b"got ping\n", said
