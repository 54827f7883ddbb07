"""Over TLS and mutual TLS: who gets in, and what those are told who do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.refusals import Refusals
from gymmesh_runtime.wire.server import MeshServer
from tests.support.certificates import Authority
from tests.unit.runtime.probe import MODEL, Probe, instance_at, stream, unary

Reason = errors_pb2.ErrorReason
both = pytest.mark.parametrize("transport", ["auto", "plain"])


@dataclass(frozen=True)
class World:
    """Two authorities, of which the services trust the first."""

    ours: Authority
    theirs: Authority


@pytest.fixture
def world(tmp_path: Path) -> World:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    return World(Authority(tmp_path / "ours"), Authority(tmp_path / "theirs"))


@asynccontextmanager
async def served(security: SecurityConfig | None) -> AsyncIterator[str]:
    server = MeshServer([Binding(MODEL, Probe())], credentials=Credentials(security))
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(1.0)


async def call(address: str, security: SecurityConfig | None, transport: TransportName) -> Any:
    directory = PeerDirectory(transport=transport, credentials=Credentials(security))
    try:
        peer = directory.peer(instance_at(address))
        frames = [frame async for frame in peer.StreamResponse(stream("ok"), timeout=30.0)]
        assert frames
        return await peer.CreateResponse(unary("ok", request_id="r"), timeout=30.0)
    finally:
        await directory.close()


async def refused(address: str, security: SecurityConfig | None, transport: TransportName) -> str:
    """The sentence of a refusal."""
    with pytest.raises(MeshError) as caught:
        await call(address, security, transport)
    assert caught.value.reason == Reason.ERROR_REASON_CREDENTIAL_INVALID, caught.value
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert "\n" not in caught.value.message
    return caught.value.message


@both
@pytest.mark.parametrize("client", ["required", "none"])
async def test_a_call_over_tls(world: World, transport: TransportName, client: str) -> None:
    services = world.ours.tls(world.ours.issue("services"), client_certificates=client)
    caller = world.ours.tls(world.ours.issue("collector") if client == "required" else None)
    async with served(services) as address:
        assert (await call(address, caller, transport)).call_id == "r"


@both
async def test_without_a_certificate(world: World, transport: TransportName) -> None:
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        said = await refused(address, world.ours.tls(None), transport)
    assert "requires a client certificate" in said


@both
async def test_with_one_of_another_authority(world: World, transport: TransportName) -> None:
    stranger = world.theirs.issue("collector")
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        said = await refused(address, world.ours.tls(stranger), transport)
    assert f"rejects our certificate {stranger.certificate}" in said
    assert "the server does not trust the issuing authority" in said


@both
async def test_with_one_that_has_expired(world: World, transport: TransportName) -> None:
    """It was good when the caller was started, and has expired since."""
    pair = world.ours.issue("collector")
    caller = Credentials(world.ours.tls(pair))
    assert caller.files is not None
    expired = world.ours.issue("collector", days=-1)
    held = caller.files.current()
    object.__setattr__(held, "certificate", expired.certificate.read_bytes())
    object.__setattr__(held, "key", expired.key.read_bytes())
    directory = PeerDirectory(transport=transport, credentials=caller)
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        with pytest.raises(MeshError) as caught:
            await directory.peer(instance_at(address)).CreateResponse(unary("ok"), timeout=30.0)
    await directory.close()
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert f"{pair.certificate} has expired; issue a new certificate" in caught.value.message


@both
async def test_of_a_server_by_another_name(world: World, transport: TransportName) -> None:
    services = world.ours.tls(world.ours.issue("services", hosts=("elsewhere",)))
    caller = world.ours.issue("collector")
    async with served(services) as address:
        said = await refused(address, world.ours.tls(caller), transport)
        assert "presents a certificate that is not for 127.0.0.1" in said
        named = world.ours.tls(caller, server_name="services")
        assert (await call(address, named, transport)).call_id == "r"


@both
async def test_of_a_server_of_another_authority(world: World, transport: TransportName) -> None:
    async with served(world.theirs.tls(world.theirs.issue("services"))) as address:
        said = await refused(address, world.ours.tls(world.ours.issue("collector")), transport)
    assert f"that the authority in {world.ours.path} did not issue" in said


@both
async def test_of_a_server_that_is_plain(world: World, transport: TransportName) -> None:
    async with served(None) as address:
        said = await refused(address, world.ours.tls(world.ours.issue("collector")), transport)
    assert "does not serve TLS" in said


async def test_a_plain_caller_gets_nothing(world: World) -> None:
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        with pytest.raises(MeshError) as caught:
            await call(address, None, "auto")
        assert caught.value.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE
        hint = await Refusals(None).find(address)
    assert hint is not None
    assert "serves TLS. Pass the authority" in hint.message


async def test_a_peer_that_is_gone_is_no_matter_of_tls(world: World) -> None:
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        pass
    with pytest.raises(MeshError) as caught:
        await call(address, world.ours.tls(world.ours.issue("collector")), "plain")
    assert caught.value.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE


@both
async def test_one_behind_something_that_hangs_up_is_no_matter_of_tls(
    world: World, transport: TransportName
) -> None:
    """As a proxy does whose service is being started again."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as proxy:
        address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        with pytest.raises(MeshError) as caught:
            await call(address, world.ours.tls(world.ours.issue("collector")), transport)
    assert caught.value.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE


async def test_strangers_do_not_hold_up_others(world: World) -> None:
    """Connections that never say anything, or nonsense."""
    async with served(world.ours.tls(world.ours.issue("services"))) as address:
        host, _, port = address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        for _, writer in silent[10:]:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        try:
            caller = world.ours.tls(world.ours.issue("collector"))
            assert (await call(address, caller, "auto")).call_id == "r"
        finally:
            for _, writer in silent:
                writer.close()
