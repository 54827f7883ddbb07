"""Who may call what: over plain RPCs and the mux, by certificates and by tokens."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.security import IdentityConfig, LimitsConfig, SecurityConfig, audit
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.telemetry.log_limit import LogLimit
from gymmesh_runtime.wire import server
from gymmesh_runtime.wire.mux.frames import EXCHANGE
from gymmesh_runtime.wire.server import MeshServer
from tests.support.certificates import Authority
from tests.unit.runtime.probe import MODEL, Probe, instance_at, stream, unary, until

Reason = errors_pb2.ErrorReason
both = pytest.mark.parametrize("transport", ["auto", "plain"])
AGENT = "gymmesh.agent.v1.AgentService"
TOKEN = "a-token-of-the-agents"
TRAINERS = "a-token-of-the-trainer"


class Model(Probe):
    """The probe, which also takes weights."""

    async def SetWeightsVersion(
        self, request: model_pb2.SetWeightsVersionRequest, context: CallContext
    ) -> model_pb2.SetWeightsVersionResponse:
        self.contexts.append(context)
        if request.version == 13:
            raise MeshError(Reason.ERROR_REASON_FIELD_INVALID, "an unlucky version")
        return model_pb2.SetWeightsVersionResponse()


@pytest.fixture
def by_token(tmp_path: Path) -> Callable[[str], SecurityConfig]:
    """The configuration of one who presents a token, which need not be a known one."""

    def made(token: str) -> SecurityConfig:
        path = tmp_path / f"{token}.txt"
        path.write_text(token)
        return SecurityConfig(token_file=str(path))

    return made


@pytest.fixture
def known(by_token: Callable[[str], SecurityConfig]) -> SecurityConfig:
    """A service's configuration that knows both tokens."""
    agents, trainer = by_token(TOKEN).token_file, by_token(TRAINERS).token_file
    return SecurityConfig(
        identities={
            "agents": IdentityConfig(token_file=agents, may=("serve",)),
            "trainer": IdentityConfig(token_file=trainer, may=("collect", "control")),
        }
    )


@asynccontextmanager
async def served(
    security: SecurityConfig | None, model: Model, service: str = MODEL
) -> AsyncIterator[str]:
    server = MeshServer([Binding(service, model)], credentials=Credentials(security))
    port = await server.start("127.0.0.1", 0)
    await server.set_serving(True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(1.0)


@asynccontextmanager
async def calling(address: str, security: SecurityConfig | None, transport: TransportName) -> Any:
    directory = PeerDirectory(transport=transport, credentials=Credentials(security))
    try:
        yield directory.peer(instance_at(address))
    finally:
        await directory.close()


async def refusal(call: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value


async def first_of(frames: Any) -> Any:
    return [frame async for frame in frames]


@both
async def test_a_permitted_call_carries_its_callers_name(
    known: SecurityConfig, by_token: Callable[[str], SecurityConfig], transport: TransportName
) -> None:
    model = Model()
    async with (
        served(known, model) as address,
        calling(address, by_token(TOKEN), transport) as peer,
    ):
        await peer.CreateResponse(unary("ok"), timeout=30.0)
        await first_of(peer.StreamResponse(stream("ok"), timeout=30.0))
        large = unary("ok", call_id="x" * 3_000_000)  # in chunks
        await peer.CreateResponse(large, timeout=30.0)
    assert [one.identity for one in model.contexts] == ["agents"] * 3
    assert not any("authorization" in one.metadata for one in model.contexts)


@both
async def test_a_token_for_another_method(
    known: SecurityConfig, by_token: Callable[[str], SecurityConfig], transport: TransportName
) -> None:
    model = Model()
    weights = model_pb2.SetWeightsVersionRequest(version=3)
    async with served(known, model) as address:
        async with calling(address, by_token(TRAINERS), transport) as peer:
            await peer.SetWeightsVersion(weights, timeout=30.0)
            for call in (
                peer.CreateResponse(unary("ok"), timeout=30.0),
                peer.CreateResponse(unary("ok", call_id="x" * 3_000_000), timeout=30.0),
                first_of(peer.StreamResponse(stream("ok"), timeout=30.0)),
            ):
                error = await refusal(call)
                assert error.code is grpc.StatusCode.PERMISSION_DENIED
                assert error.reason == Reason.ERROR_REASON_NOT_PERMITTED
                assert "requires the permission 'serve'" in error.message
        async with calling(address, by_token(TOKEN), transport) as peer:
            error = await refusal(peer.SetWeightsVersion(weights, timeout=30.0))
            assert error.metadata == {"method": f"{MODEL}/SetWeightsVersion"}
            assert error.code is grpc.StatusCode.PERMISSION_DENIED
    assert len(model.contexts) == 1  # the one that was permitted


@both
@pytest.mark.parametrize("token", ["", "a-wrong-token", TOKEN[:-1]])
async def test_without_a_token_and_with_a_wrong_one(
    known: SecurityConfig,
    by_token: Callable[[str], SecurityConfig],
    transport: TransportName,
    token: str,
) -> None:
    model = Model()
    shown = by_token(token) if token else None
    async with served(known, model) as address, calling(address, shown, transport) as peer:
        said = set()
        for call in (
            peer.CreateResponse(unary("ok"), timeout=30.0),
            first_of(peer.StreamResponse(stream("ok"), timeout=30.0)),
            peer.GetModel(model_pb2.GetModelRequest(), timeout=30.0),
        ):
            error = await refusal(call)
            assert error.code is grpc.StatusCode.UNAUTHENTICATED
            assert error.reason == Reason.ERROR_REASON_CREDENTIAL_INVALID
            said.add(error.message)
        (sentence,) = said
        assert "does not recognise the caller" in sentence
        for secret in (token, "agents", "trainer"):
            assert not secret or secret not in sentence
    assert not model.contexts


@both
async def test_identities_by_certificate(tmp_path: Path, transport: TransportName) -> None:
    authority = Authority(tmp_path)
    identities = {
        "agents": IdentityConfig(certificates=("spiffe://mesh/agents",), may=("serve",)),
        "trainer": IdentityConfig(certificates=("trainer",), may=("control",)),
    }
    services = authority.tls(authority.issue("services"), identities=identities)
    agents = authority.tls(authority.issue("agents", uri="spiffe://mesh/agents"))
    model = Model()
    async with served(services, model) as address:
        async with calling(address, agents, transport) as peer:
            await peer.CreateResponse(unary("ok"), timeout=30.0)
        async with calling(address, authority.tls(authority.issue("trainer")), transport) as peer:
            error = await refusal(peer.CreateResponse(unary("ok"), timeout=30.0))
            assert error.code is grpc.StatusCode.PERMISSION_DENIED
            assert "'trainer' may not call" in error.message
        async with calling(address, authority.tls(authority.issue("other")), transport) as peer:
            error = await refusal(peer.CreateResponse(unary("ok"), timeout=30.0))
            assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert [one.identity for one in model.contexts] == ["agents"]


async def test_a_call_on_the_mux_may_present_a_token_of_its_own(
    known: SecurityConfig, by_token: Callable[[str], SecurityConfig]
) -> None:
    model = Model()
    weights = model_pb2.SetWeightsVersionRequest(version=3)
    async with (
        served(known, model) as address,
        calling(address, by_token(TOKEN), "auto") as peer,
    ):
        own = {"authorization": f"Bearer {TRAINERS}"}
        await peer.SetWeightsVersion(weights, timeout=30.0, metadata=own)
        own = {"authorization": "Bearer wrong"}
        error = await refusal(peer.CreateResponse(unary("ok"), timeout=30.0, metadata=own))
        assert error.code is grpc.StatusCode.UNAUTHENTICATED
        await peer.CreateResponse(unary("ok"), timeout=30.0)  # the stream goes on
    assert [one.identity for one in model.contexts] == ["trainer", "agents"]


async def test_a_mux_is_for_those_who_are_known(known: SecurityConfig) -> None:
    async with served(known, Model()) as address, grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(f"/{EXCHANGE}")()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    "method",
    [f"{AGENT}/Collect", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"],
)
async def test_a_refused_stream_ends_after_its_first_request(
    known: SecurityConfig, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status that met the client's first write would be lost: see `_read_first`."""
    monkeypatch.setattr(server, "_FIRST_REQUEST_S", 60.0)  # the test may be slow to send one
    security = SecurityConfig(identities=known.identities, reflection=True)
    async with (
        served(security, Model(), AGENT) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call: Any = channel.stream_stream(f"/{method}")(timeout=120.0)
        await call.wait_for_connection()
        await asyncio.sleep(0.3)
        assert not call.done()
        await call.write(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_refused_stream_without_a_request_ends_soon(known: SecurityConfig) -> None:
    async with (
        served(known, Model(), AGENT) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call: Any = channel.stream_stream(f"/{AGENT}/Collect")(timeout=120.0)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("offered", [None, True, False])
async def test_health_is_open_and_reflection_is_not(
    known: SecurityConfig, offered: bool | None
) -> None:
    security = SecurityConfig(identities=known.identities, reflection=offered)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with served(security, Model()) as address, grpc.aio.insecure_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=30.0)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        make: Any = reflection_pb2_grpc.ServerReflectionStub
        stub = make(channel)
        for metadata, code in (
            ((), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", f"Bearer {TOKEN}"),), None),
        ):
            # A client that sends to what is not offered may report an internal error.
            requests = iter([request]) if offered else None
            call = stub.ServerReflectionInfo(requests, timeout=30.0, metadata=metadata)
            if offered and code is None:
                assert MODEL in str(await call.read())
                continue
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            expected = code if offered else grpc.StatusCode.UNIMPLEMENTED
            assert caught.value.code() is expected


@pytest.mark.parametrize(
    ("version", "outcome"), [(3, "OK"), (13, "FIELD_INVALID"), (None, "NOT_PERMITTED")]
)
async def test_actions_and_refusals_leave_a_line(
    known: SecurityConfig,
    by_token: Callable[[str], SecurityConfig],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    version: int | None,
    outcome: str,
) -> None:
    caplog.set_level(logging.INFO, "gymmesh.audit")
    monkeypatch.setattr(audit, "_denials", LogLimit(clock=lambda: 0.0))
    async with (
        served(known, Model()) as address,
        calling(address, by_token(TRAINERS), "auto") as peer,
    ):
        if version is None:
            for _ in range(50):
                await refusal(peer.CreateResponse(unary("ok"), timeout=30.0))
        else:
            request = model_pb2.SetWeightsVersionRequest(version=version)
            call = peer.SetWeightsVersion(request, timeout=30.0)
            await (refusal(call) if outcome != "OK" else call)
    said = [one.getMessage() for one in caplog.records if one.name == "gymmesh.audit"]
    (line,) = map(json.loads, said)  # a flood of refusals is no flood of lines
    assert line["identity"] == "trainer"
    assert line["outcome"] == outcome
    assert line["target"] == ({} if version is None else {"version": version})
    assert TRAINERS not in caplog.text


@both
async def test_limits_hold_for_each_by_itself(
    known: SecurityConfig, by_token: Callable[[str], SecurityConfig], transport: TransportName
) -> None:
    identities = {
        name: IdentityConfig(token_file=one.token_file, may=("serve",))
        for name, one in known.identities.items()
    }
    limits = LimitsConfig(calls=1, message_bytes=2_000_000)
    security = SecurityConfig(identities=identities, limits=limits)
    model = Model()
    async with (
        served(security, model) as address,
        calling(address, by_token(TOKEN), transport) as agents,
        calling(address, by_token(TRAINERS), transport) as trainer,
    ):
        hanging = asyncio.create_task(agents.CreateResponse(unary("hang"), timeout=60.0))
        await until(lambda: model.contexts)
        error = await refusal(agents.CreateResponse(unary("ok"), timeout=30.0))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.reason == Reason.ERROR_REASON_QUEUE_FULL
        assert error.retry_after_s
        await trainer.CreateResponse(unary("ok"), timeout=30.0)
        large = unary("ok", call_id="x" * 3_000_000)
        error = await refusal(trainer.CreateResponse(large, timeout=30.0))
        assert error.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
        hanging.cancel()
        await asyncio.wait((hanging,))
