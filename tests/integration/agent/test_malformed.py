"""Calls that nobody should make: each ends with a typed error, and none is the server's fault."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.service import AGENT_SERVICE
from gymmesh_discovery.service import KIND, DiscoveryService
from gymmesh_responses import params_from_json
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory
from tests.support.logged import without_other_loops
from tests.unit.agent.mesh import BOUND_S, ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, says
from tests.unit.runtime.probe import PATHS, instance_at

MIB = 1024 * 1024
LARGE = "x" * MIB
CONTROL = "a\x00b\n\x1b[31m"
OK: None = None


@pytest.fixture(autouse=True)
def no_fault(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing may be logged with a traceback: it would be a fault that nobody foresaw."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in without_other_loops(caplog.get_records("call")):
        assert record.exc_info is None, record.getMessage()


async def reason_of(awaitable: Any) -> str | None:
    """The reason with which a call fails; None: it does not."""
    try:
        await asyncio.wait_for(awaitable, BOUND_S)
    except MeshError as error:
        return reason_in(error)
    return None


def reason_in(error: MeshError) -> str:
    assert len(error.message) < 3000
    return error.reason_name


# ---- discovery ----------------------------------------------------------------------------


def instance(**fields: Any) -> discovery_pb2.RegisterRequest:
    one = instance_at("127.0.0.1:1", instance_id="one")
    for name, value in fields.items():
        if name == "meta":
            one.meta.update(value)
        else:
            setattr(one, name, value)
    return discovery_pb2.RegisterRequest(instance=one)


def leased(lease_s: int) -> discovery_pb2.RegisterRequest:
    request = instance()
    request.lease_s = lease_s
    return request


pb = discovery_pb2
DISCOVERY_CALLS: list[tuple[str, Any, str | None]] = [
    ("Register", pb.RegisterRequest(), "REQUIRED_FIELD_MISSING"),
    *(
        ("Register", instance(**{name: ""}), "REQUIRED_FIELD_MISSING")
        for name in ("id", "service", "name", "address")
    ),
    *(
        ("Register", instance(**{name: bad}), "FIELD_INVALID")
        for name in ("id", "service", "name", "address", "metrics_address", "contract_version")
        for bad in (CONTROL, "with\ttab", "\x7f", LARGE)
    ),
    ("Register", instance(id="../../etc/passwd"), OK),
    ("Register", instance(address="two words:1"), "FIELD_INVALID"),
    ("Register", instance(meta={str(n): "v" for n in range(65)}), "FIELD_INVALID"),
    ("Register", instance(meta={"key": LARGE}), "FIELD_INVALID"),
    ("Register", instance(meta={LARGE: "value"}), "FIELD_INVALID"),
    ("Register", instance(weight=2**32 - 1), OK),
    ("Register", leased(2**32 - 1), OK),
    ("Renew", pb.RenewRequest(), "REQUIRED_FIELD_MISSING"),
    ("Renew", pb.RenewRequest(lease_id=CONTROL), "LEASE_NOT_FOUND"),
    ("Renew", pb.RenewRequest(lease_id=LARGE), "LEASE_NOT_FOUND"),
    ("Renew", pb.RenewRequest(lease_id="x", health=77), "LEASE_NOT_FOUND"),  # type: ignore[arg-type]
    ("Deregister", pb.DeregisterRequest(), "REQUIRED_FIELD_MISSING"),
    ("Deregister", pb.DeregisterRequest(lease_id=LARGE), OK),
    ("ListInstances", pb.ListInstancesRequest(page_size=-1), "FIELD_INVALID"),
    ("ListInstances", pb.ListInstancesRequest(page_size=2**31 - 1), OK),
    ("ListInstances", pb.ListInstancesRequest(page_token=CONTROL), OK),
    ("ListInstances", pb.ListInstancesRequest(service=LARGE, name=LARGE), OK),
]


@pytest.fixture(params=sorted(PATHS))
async def registry(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    service = DiscoveryService("registry-0")
    await service.open(PeerDirectory())
    async with PATHS[request.param](service.servicers()) as directory:
        yield directory.peer(directory.instances()[0], KIND)
    await service.close()


async def test_calls_of_the_registry(registry: Any) -> None:
    for method, request, expected in DISCOVERY_CALLS:
        found = await reason_of(getattr(registry, method)(request, timeout=BOUND_S))
        assert found == expected, (method, str(request)[:200])
        await registry.ListInstances(pb.ListInstancesRequest(), timeout=BOUND_S)  # it lives on


TIMEOUTS = [
    (-1.0, "DEADLINE_PASSED"), (0.0, "DEADLINE_PASSED"), (math.nan, "DEADLINE_PASSED"),
    (-math.inf, "DEADLINE_PASSED"), (1e300, OK), (math.inf, OK), (1e9, OK),
]  # fmt: skip


@pytest.mark.parametrize(("timeout", "expected"), TIMEOUTS)
async def test_timeouts(registry: Any, timeout: float, expected: str | None) -> None:
    request = pb.ListInstancesRequest()
    assert await reason_of(registry.ListInstances(request, timeout=timeout)) == expected

    async def first() -> None:
        async with aclosing(
            registry.WatchInstances(pb.WatchInstancesRequest(name=LARGE), timeout=timeout)
        ) as responses:
            await anext(responses)

    assert await reason_of(first()) == expected


# ---- the agent ----------------------------------------------------------------------------


def rollout(**fields: Any) -> agent_pb2.RunRolloutRequest:
    request = ask()
    for name, value in fields.items():
        owner: Any = request
        *path, last = name.split("__")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)
    return request


def without(field: str) -> agent_pb2.RunRolloutRequest:
    request = ask()
    request.ClearField(field)  # type: ignore[arg-type]
    return request


def modelled(role: str, name: str) -> agent_pb2.RunRolloutRequest:
    request = ask()
    request.options.models[role] = name
    return request


def of(params: Any) -> agent_pb2.RunRolloutRequest:
    request = ask()
    request.task.params.CopyFrom(params_from_json(params))
    return request


#: What RunRollout answers, or the reason of the `failed` event; the tuple: either event or error.
ROLLOUTS: list[tuple[Any, str | None]] = [
    (agent_pb2.RunRolloutRequest(), "REQUIRED_FIELD_MISSING"),
    (without("task"), "REQUIRED_FIELD_MISSING"),
    (without("rollout_id"), "REQUIRED_FIELD_MISSING"),
    (rollout(task__environment=""), "REQUIRED_FIELD_MISSING"),
    *(
        (rollout(**{name: bad}), "FIELD_INVALID")
        for name in ("rollout_id", "run_id", "task__environment", "task__agent")
        for bad in (CONTROL, "\x7f", LARGE)
    ),
    (rollout(task__task_id=CONTROL), OK),  # a row's own, and never a name of anything here
    (rollout(task__task_id=LARGE), OK),
    (rollout(rollout_id="../../etc/passwd"), OK),
    (rollout(attempt=2**32 - 1), OK),
    (rollout(task__environment="../tiny"), "SERVICE_NOT_FOUND"),
    (rollout(task__agent="somebody"), "SERVICE_NOT_FOUND"),
    (rollout(task__seed=-(2**63)), OK),
    (rollout(options__max_steps=0), "FIELD_INVALID"),
    (rollout(options__max_steps=2**32 - 1), OK),
    (rollout(options__max_total_output_tokens=-1), "FIELD_INVALID"),
    (rollout(options__max_total_output_tokens=2**63 - 1), OK),
    *(
        (rollout(options__max_wall_s=bad), "FIELD_INVALID")
        for bad in (math.nan, math.inf, -math.inf, -1.0, 0.0)
    ),
    (rollout(options__max_wall_s=1e300), OK),
    (rollout(options__max_staleness=2**64 - 1), OK),
    *(
        (rollout(options__params_override_json=bad), "FIELD_INVALID")
        for bad in (b"\xff", b"[]", b"{", b'{"input": "x"}', b"[" * 100_000, b"1" * 10_000)
    ),
    (modelled("policy", CONTROL), "FIELD_INVALID"),
    (modelled("policy", LARGE), "FIELD_INVALID"),
    (modelled(LARGE, "policy"), "FIELD_INVALID"),
    (of({"input": 7}), "FIELD_INVALID"),
    (of({"input": LARGE}), OK),
    (of({"input": "x", "temperature": "hot"}), OK),  # the model's matter
]


@pytest.mark.parametrize("path", ["direct", "grpc", "mux"])
async def test_rollouts(path: str) -> None:
    model = ScriptedModel([says("4")], repeat=True)
    async with running(path, TinyEnvironment(), {"policy": model}) as mesh:
        for request, expected in ROLLOUTS:
            assert await outcome_of(mesh.agent, request) == expected, str(request)[:200]
        await mesh.settled()


async def outcome_of(agent: Any, request: agent_pb2.RunRolloutRequest) -> str | None:
    """The reason with which an attempt fails, or is refused; None: it is completed."""
    event = None
    try:
        async with (
            asyncio.timeout(BOUND_S),
            aclosing(agent.RunRollout(request, timeout=BOUND_S)) as events,
        ):
            async for response in events:
                event = response.event
    except MeshError as error:
        return reason_in(error)
    assert event is not None
    if event.HasField("completed"):
        return None
    return from_status(event.failed.failure.status).reason_name


@pytest.mark.parametrize("path", ["direct", "grpc"])
async def test_starts_of_a_collector_are_refused_alike(path: str) -> None:
    model = ScriptedModel([says("4")], repeat=True)
    async with running(path, TinyEnvironment(), {"policy": model}) as mesh:
        for number, (request, expected) in enumerate(ROLLOUTS):
            found = await collected(mesh.agent, request, f"hard-to-guess-{number}")
            assert found == expected, str(request)[:200]
        await mesh.settled()


async def collected(agent: Any, request: agent_pb2.RunRolloutRequest, stream_id: str) -> str | None:
    """The same over Collect."""
    ended = asyncio.Event()

    async def say() -> AsyncIterator[agent_pb2.CollectRequest]:
        hello = agent_pb2.CollectHello(stream_id=stream_id, credit=1000)
        yield agent_pb2.CollectRequest(hello=hello)
        start = agent_pb2.CollectStart(request=request, timeout_ms=2**64 - 1)
        yield agent_pb2.CollectRequest(starts=agent_pb2.CollectStarts(starts=[start]))
        await ended.wait()

    found: list[str | None] = []
    async with asyncio.timeout(BOUND_S), aclosing(agent.Collect(say(), timeout=BOUND_S)) as heard:
        async for response in heard:
            if response.HasField("start_refused"):
                found.append(from_status(response.start_refused.status).reason_name)
            for event in response.events.events:
                if event.HasField("completed"):
                    found.append(None)
                if event.HasField("failed"):
                    found.append(from_status(event.failed.failure.status).reason_name)
            if found:
                ended.set()
    (one,) = found
    return one


HELLOS: list[tuple[dict[str, Any], str | None]] = [
    ({"stream_id": CONTROL}, "FIELD_INVALID"),
    ({"stream_id": LARGE}, "FIELD_INVALID"),
    ({"contract_version": LARGE}, "CONTRACT_MISMATCH"),
    ({"contract_version": CONTROL}, "CONTRACT_MISMATCH"),
    ({"last_cursor": 2**64 - 1}, OK),
    ({"credit": 2**64 - 1}, OK),
]
MESSAGES: list[tuple[dict[str, Any], str | None]] = [
    ({"credit": {"events": 2**64 - 1}}, OK),
    ({"ack": {"cursor": 2**64 - 1}}, "FIELD_INVALID"),
    ({"cancels": {"attempts": [{"rollout_id": LARGE, "attempt": 2**32 - 1}]}}, OK),
    ({"cancels": {"attempts": [{}]}}, OK),
    ({"cancels": {}}, "REQUIRED_FIELD_MISSING"),
    ({"starts": {}}, OK),
]


@pytest.mark.parametrize("path", ["direct", "grpc"])
async def test_messages_of_a_collector(path: str) -> None:
    async with running(path, TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh:
        for number, (fields, expected) in enumerate([*HELLOS, *MESSAGES]):
            hello: dict[str, Any] = {
                "stream_id": f"a-stream-hard-to-guess-{number}",
                "credit": 2**64 - 1,
            }
            said: list[dict[str, Any]] = [{"hello": hello}]
            if number < len(HELLOS):
                hello |= fields
            else:
                said.append(fields)
            found = await reason_of(converse(mesh.agent, said))
            assert found == expected, str(fields)[:200]


async def converse(agent: Any, said: list[dict[str, Any]]) -> None:
    async def say() -> AsyncIterator[agent_pb2.CollectRequest]:
        for fields in said:
            yield agent_pb2.CollectRequest(**fields)

    async with aclosing(agent.Collect(say(), timeout=BOUND_S)) as heard:
        async for _response in heard:
            pass


def group(**task: Any) -> agent_pb2.JudgeGroupRequest:
    members = [verify_pb2.GroupMember(rollout_id=str(n), stop_reason=1) for n in range(2)]  # type: ignore[arg-type]
    one = verify_pb2.VerifyGroupRequest(members=members)
    one.task.CopyFrom(rollout(**task).task)
    return agent_pb2.JudgeGroupRequest(group=one)


GROUPS = [
    (agent_pb2.JudgeGroupRequest(), "REQUIRED_FIELD_MISSING"),
    (group(task__environment=""), "REQUIRED_FIELD_MISSING"),
    (group(task__environment="nobody"), "SERVICE_NOT_FOUND"),
    (group(task__environment=CONTROL), "FIELD_INVALID"),
    (group(task__environment=LARGE), "FIELD_INVALID"),
]


@pytest.mark.parametrize("path", ["direct", "grpc", "mux"])
async def test_groups(path: str) -> None:
    async with running(path, TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh:
        for request, expected in GROUPS:
            found = await reason_of(mesh.agent.JudgeGroup(request, timeout=BOUND_S))
            assert found == expected, str(request)[:200]


@pytest.mark.parametrize("path", ["direct", "grpc", "mux"])
async def test_timeouts_of_an_agent(path: str) -> None:
    model = ScriptedModel([says("4")], repeat=True)
    async with running(path, TinyEnvironment(), {"policy": model}) as mesh:
        for timeout, expected in TIMEOUTS:
            found = await reason_of(
                mesh.agent.GetAgent(agent_pb2.GetAgentRequest(), timeout=timeout)
            )
            assert found == expected, timeout

            async def run(timeout: float = timeout) -> None:
                async for _response in mesh.agent.RunRollout(ask(), timeout=timeout):
                    pass

            # Directly, an attempt without any time is a rollout that fails at its deadline.
            allowed = {expected, None} if path == "direct" else {expected}
            assert await reason_of(run()) in allowed, timeout
        await mesh.settled()


@pytest.mark.parametrize("service", [KIND, AGENT_SERVICE])
async def test_strings_of_64_mib(service: str) -> None:
    """As large as a message may be, and a little more."""
    async with running("mux", TinyEnvironment(), {"policy": ScriptedModel([])}) as mesh:
        registry = DiscoveryService("registry-0")
        await registry.open(PeerDirectory())
        async with PATHS["mux"](registry.servicers()) as directory:
            peer = directory.peer(directory.instances()[0], KIND)
            for size, expected in ((63 * MIB, "FIELD_INVALID"), (64 * MIB, "MESSAGE_TOO_LARGE")):
                text = "x" * size
                if service == KIND:
                    found = await reason_of(peer.Register(instance(id=text), timeout=BOUND_S))
                else:
                    found = await outcome_of(mesh.agent, rollout(rollout_id=text))
                assert found == expected
        await registry.close()
