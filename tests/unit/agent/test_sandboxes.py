"""Sandboxes of an attempt: those that the session lends, and the agent's own.

The sandbox service is a stand-in whose sandboxes are folders: see tests/unit/sandbox_access.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.service import AgentService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox_access import SandboxSpec
from tests.unit.agent.mesh import Mesh, ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, ok, says
from tests.unit.agent.streams import kinds
from tests.unit.sandbox_access.stand_in import StandIn, client_of, error

Events = list[rollout_pb2.RolloutEvent]
RULE = rollout_pb2.STOP_REASON_AGENT_RULE


class Works(Agent):
    """Works in the sandbox that it is lent."""

    async def run(self, context: RolloutContext) -> Completion:
        box = context.sandboxes["workspace"]
        await box.files.write("answer", "6 * 7")
        result = await box.exec("cat answer; echo", timeout_s=3600)
        return Completion(RULE, detail=f"{list(context.sandboxes)} {result.text.strip()}")


class Ends(Agent):
    """Ends what it does not own."""

    async def run(self, context: RolloutContext) -> Completion:
        await context.sandboxes["workspace"].end()
        return Completion(RULE)


class Asks(Agent):
    """Asks for what it does not have."""

    async def run(self, context: RolloutContext) -> Completion:
        assert "tests" not in context.sandboxes
        return Completion(RULE, detail=repr(context.sandboxes["tests"]))


class Own(Agent):
    """Has a sandbox of its own, which it uses where the environment lends none."""

    sandboxes: ClassVar[Mapping[str, SandboxSpec]] = MappingProxyType(
        {"workspace": SandboxSpec(image="own", files={"notes": "mine"})}
    )

    async def run(self, context: RolloutContext) -> Completion:
        box = context.sandboxes["workspace"]
        more = context.sandboxes.add("more", SandboxSpec(image="more"))
        await more.files.write("notes", "more")
        return Completion(RULE, detail=f"{list(context.sandboxes)} {(await box.exec('ls')).text}")


class Careless(Own):
    """Returns whatever goes wrong."""

    async def run(self, context: RolloutContext) -> Completion:
        with suppress(MeshError):
            await context.sandboxes["workspace"].exec("sleep 0")
        return Completion(RULE)


@asynccontextmanager
async def lending(agent: type[Agent], service: StandIn) -> AsyncIterator[Mesh]:
    """An environment that lends a sandbox, which it owns, to an agent."""
    async with client_of(service) as owner:
        box = await owner.create(SandboxSpec(image="py:1"))
        environment = TinyEnvironment(sandboxes=[await box.grant("workspace")])
        async with agent_of(agent, service, environment) as mesh:
            yield mesh
            assert await box.exec("true"), "the owner has it still"


@asynccontextmanager
async def agent_of(
    agent: type[Agent], service: StandIn, environment: TinyEnvironment | None = None
) -> AsyncIterator[Mesh]:
    models = {"policy": ScriptedModel([says("done")])}
    config = AgentConfig(
        use=f"{__name__}:{agent.__name__}",
        sandboxes={"sandbox": "boxes"} if agent.sandboxes else {},
    )
    tiny = environment or TinyEnvironment()
    async with running("direct", tiny, models, config, {"boxes": service}) as mesh:
        yield mesh


def opened(events: Events) -> list[rollout_pb2.SandboxOpened]:
    found = [event for event in events if event.HasField("sandbox_opened")]
    assert all(event.ignorable for event in found)
    return [event.sandbox_opened for event in found]


def ended(events: Events) -> list[tuple[str, rollout_pb2.SandboxEndCause.ValueType]]:
    """Which sandboxes ended before their rollout, by role, and why."""
    roles = {one.sandbox.sandbox_id: one.role for one in opened(events)}
    found = [event for event in events if event.HasField("sandbox_ended")]
    assert all(event.ignorable for event in found)
    ends = [event.sandbox_ended for event in found]
    return sorted((roles[one.sandbox_id], one.end.cause) for one in ends)


async def test_an_agent_works_in_a_sandbox_that_it_is_lent(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with lending(Works, service) as mesh:
        events = await mesh.run()
        (sandbox_id,) = service.leases
        leases = service.leases[sandbox_id]
    assert events[-1].completed.stop_detail == "['workspace'] 6 * 7"
    assert (tmp_path / sandbox_id / "answer").read_text() == "6 * 7"
    assert kinds(events)[:2] == ["started", "sandbox_opened"]
    (one,) = opened(events)
    assert (one.role, one.sandbox.sandbox_id, one.sandbox.image) == (
        "workspace",
        sandbox_id,
        "py:1",
    )
    assert not ended(events)  # only the sandbox's owner can end it after the rollout
    assert leases
    assert not any(lease in event.SerializeToString() for event in events for lease in leases)


async def test_a_call_takes_no_longer_than_the_attempt_may(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with lending(Works, service) as mesh:
        await mesh.run(timeout=50.0)
    programs = [one.process for one in service.requests if hasattr(one, "stdin")]
    (limit_ms,) = [one.timeout_ms for one in programs if one.shell.startswith("cat")]
    assert 1 <= limit_ms <= 50_000


async def test_the_owner_ends_what_it_lends(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with lending(Ends, service) as mesh:
        failure = (await mesh.run())[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_AGENT
    assert "only the sandbox's owner can end it" in str(from_status(failure.status).metadata)


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with lending(Asks, service) as mesh:
        failure = (await mesh.run())[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_AGENT
    said = str(from_status(failure.status).metadata)
    assert "no sandbox 'tests', only workspace" in said


async def test_an_agents_own_sandboxes_end_when_it_has_returned(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with agent_of(Own, service) as mesh:
        events = await mesh.run()
        assert not service.leases
        assert service.calls["EndSandbox"] == 2
    assert events[-1].completed.stop_detail == "['workspace', 'more'] notes\n"
    assert {(one.role, one.sandbox.image) for one in opened(events)} == {
        ("workspace", "own"),
        ("more", "more"),
    }
    owner = rollout_pb2.SANDBOX_END_CAUSE_OWNER
    assert ended(events) == [("more", owner), ("workspace", owner)]
    assert kinds(events)[-4:] == ["sandbox_ended", "sandbox_ended", "verified", "completed"]
    made = next(iter(service.requests))
    assert (made.rollout_id, made.attempt) == ("r1", 1)


async def test_a_lent_sandbox_takes_the_place_of_its_own(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with lending(Own, service) as mesh:
        events = await mesh.run()
        assert len(service.leases) == 1
    images = [one.sandbox.image for one in opened(events)]
    assert images == ["py:1", "more"]


async def test_a_sandbox_that_was_lost_gives_no_verdict(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    service.ends_under = "sleep 0"
    async with agent_of(Careless, service) as mesh:
        events = await mesh.run()
        failure = events[-1].failed.failure
        assert not mesh.environment.verified
    assert failure.boundary == rollout_pb2.BOUNDARY_SANDBOX
    assert from_status(failure.status).reason_name == "SANDBOX_LOST"
    assert failure.retry_safe
    # Lost, though the agent's own are ended when it returns.
    assert ended(events) == [("workspace", rollout_pb2.SANDBOX_END_CAUSE_LOST)]


async def test_sandboxes_end_with_an_attempt_that_is_stopped(tmp_path: Path) -> None:
    service = StandIn(tmp_path, "boxes-0")
    async with agent_of(Hangs, service) as mesh:
        failure = (await mesh.run(ask(max_wall_s=0.2)))[-1].failed.failure
        assert not service.leases
    assert failure.boundary == rollout_pb2.BOUNDARY_BUDGET


class Hangs(Own):
    """Runs a program that does not end."""

    async def run(self, context: RolloutContext) -> Completion:
        await context.sandboxes["workspace"].exec("hang")
        return Completion(RULE)


def made(role: str) -> rollout_pb2.SandboxOpened:
    one = rollout_pb2.SandboxOpened(role=role)
    one.sandbox.sandbox_id, one.sandbox.image = f"sb-{role}", "py:1"
    return one


async def test_sandboxes_that_the_environment_opens_for_itself_are_events() -> None:
    async def shell(arguments: bytes) -> resource_pb2.CallToolResponse:
        answer = ok("ran")
        answer.sandboxes.append(made("workspace"))
        return answer

    environment = TinyEnvironment(tools={"shell": shell}, judged_in=[made("tests")])
    models = {"policy": ScriptedModel([calls(call("shell")), says("done")])}
    async with running("direct", environment, models) as mesh:
        events = await mesh.run()
    assert opened(events) == [made("workspace"), made("tests")]
    order = kinds(events)
    assert order.index("sandbox_opened") == order.index("tool_call_completed") - 1
    assert order[-3:] == ["sandbox_opened", "verified", "completed"]


async def test_ends_that_the_environment_reports_are_events() -> None:
    async def shell(arguments: bytes) -> resource_pb2.CallToolResponse:
        answer = ok("ran")
        answer.sandboxes.extend([made("workspace"), made("tests")])
        for role in ("tests", "unknown"):
            over = answer.ended_sandboxes.add(sandbox_id=f"sb-{role}")
            over.end.cause = rollout_pb2.SANDBOX_END_CAUSE_OWNER
        return answer

    async def late(arguments: bytes) -> resource_pb2.CallToolResponse:
        raise error("SANDBOX_LOST", sandbox_id="sb-workspace", cause="life")

    environment = TinyEnvironment(tools={"shell": shell, "late": late})
    models = {"policy": ScriptedModel([calls(call("shell")), calls(call("late")), says("done")])}
    async with running("direct", environment, models) as mesh:
        events = await mesh.run()
    assert ended(events) == [
        ("tests", rollout_pb2.SANDBOX_END_CAUSE_OWNER),
        ("workspace", rollout_pb2.SANDBOX_END_CAUSE_LIFE),
    ]
    assert kinds(events)[-2:] == ["sandbox_ended", "failed"]


async def test_a_sandbox_that_ends_in_the_first_call_is_an_event() -> None:
    async def shell(arguments: bytes) -> resource_pb2.CallToolResponse:
        about = {"sandbox_id": "sb-workspace", "image": "py:1", "role": "workspace"}
        raise error("SANDBOX_LOST", cause="life", **about)

    environment = TinyEnvironment(tools={"shell": shell})
    models = {"policy": ScriptedModel([calls(call("shell"))])}
    async with running("direct", environment, models) as mesh:
        events = await mesh.run()
    assert opened(events) == [made("workspace")]
    assert ended(events) == [("workspace", rollout_pb2.SANDBOX_END_CAUSE_LIFE)]
    assert kinds(events)[-3:] == ["sandbox_opened", "sandbox_ended", "failed"]


@pytest.mark.parametrize(("uses", "longest"), [((), 60.0), (("boxes",), 660.0)])
async def test_the_wait_for_a_sandbox_is_not_the_tools_time(
    uses: tuple[str, ...], longest: float
) -> None:
    async def shell(arguments: bytes) -> resource_pb2.CallToolResponse:
        return ok("ran")

    environment = TinyEnvironment(tools={"shell": shell}, uses_sandboxes=uses)
    models = {"policy": ScriptedModel([calls(call("shell")), says("done")])}
    config = AgentConfig(max_wall_s=3600.0)
    async with running("direct", environment, models, config) as mesh:
        await mesh.run(timeout=3600.0)
    (left,) = environment.time_left
    assert longest - 60 < left <= longest


async def test_an_instance_that_is_not_known_here_is_said(tmp_path: Path) -> None:
    grant = grant_pb2.SandboxGrant(role="workspace", lease=b"secret")
    grant.sandbox.sandbox_id, grant.sandbox.service = "b-1", "sandbox"
    grant.sandbox.instance_id = "sandbox-sandbox-of-environment-0"
    environment = TinyEnvironment(sandboxes=[grant])
    async with agent_of(Works, StandIn(tmp_path, "boxes-0"), environment) as mesh:
        failure = (await mesh.run())[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_SANDBOX
    assert "Configure a sandbox service under" in failure.status.message


async def test_services_that_are_not_there_are_said(tmp_path: Path) -> None:
    config = AgentConfig(use=f"{__name__}:Own", sandboxes={"sandbox": "nowhere"})
    service = AgentService(config, "a", "a-0")
    assert (service.sandboxes.names, service.sandboxes.own) == (["nowhere"], [])
    with pytest.raises(
        ConfigError, match=r"agents\.a: the agent uses the sandbox service 'sandbox'"
    ):
        await service.open(PeerDirectory())
    config = AgentConfig(use=f"{__name__}:Works", sandboxes={"sandbox": "boxes"})
    with pytest.raises(ConfigError, match=r"agents\.a: the agent declares no sandbox service"):
        await AgentService(config, "a", "a-0").open(PeerDirectory())
