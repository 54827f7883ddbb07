"""KubernetesClient over TLS, against a server that does not answer a farewell."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gymmesh_discovery.backends.kubernetes.access import find_access
from gymmesh_discovery.backends.kubernetes.client import GoneError, KubernetesClient
from gymmesh_discovery.config import KubernetesConfig
from tests.support.certificates import Authority

HOST: Final = "127.0.0.1"
_BOUND_S: Final = 25.0  # TLS would wait 30
_GONE: Final = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listening:
        listening.settimeout(_BOUND_S)
        yield listening


def watched(listener: socket.socket, context: ssl.SSLContext) -> str:
    """Answers a watch with an event that its version is gone, and then says nothing more; how the
    client's side of the connection ends.
    """
    taken, _ = listener.accept()
    with context.wrap_socket(taken, server_side=True) as connection:
        connection.settimeout(_BOUND_S)
        connection.recv(65536)
        line = json.dumps(_GONE).encode() + b"\n"
        connection.sendall(_ANSWER + b"%x\r\n%s\r\n" % (len(line), line))
        try:
            # Below TLS, which would answer a farewell by itself.
            while socket.socket.recv(connection, 65536):
                pass
        except ConnectionResetError:
            return "reset"
        except TimeoutError:
            return "it stays open"
    return "closed"


async def test_a_watch_that_is_left_keeps_no_connection(
    listener: socket.socket, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("kubernetes")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    config = KubernetesConfig(
        server=f"https://{HOST}:{listener.getsockname()[1]}",
        ca_file=str(authority.path),
        namespace="lab",
    )
    client = KubernetesClient(config, find_access(config))
    async with asyncio.TaskGroup() as tasks:
        server = tasks.create_task(asyncio.to_thread(watched, listener, context))
        with pytest.raises(GoneError):
            async with client.watch("7") as events:
                assert [event async for event in events] == []
        await client.close()
    assert server.result() in ("closed", "reset")
