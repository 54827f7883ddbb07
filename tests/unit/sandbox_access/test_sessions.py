"""Sandboxes of sessions: when they open and end, who works in them, and no verdict without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import Environment, Rollout, SandboxSpec, Session, Task, ToolError, tool
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.timers import running_call
from gymmesh_sandbox_access import SANDBOX_SERVICE
from tests.unit.resource.served import TIMEOUT, Served, task
from tests.unit.sandbox_access.stand_in import StandIn, error, instance


class Desk(Environment[None]):
    """A folder to work in."""

    sandbox: SandboxSpec | None = SandboxSpec(image="small", files={"notes": "one\n"})
    sandboxes: Mapping[str, SandboxSpec] = MappingProxyType({"tests": SandboxSpec(image="tests")})

    @tool
    async def shell(self, session: Session[None], line: str) -> str:
        """Run a line."""
        return (await session.sandbox.exec(line)).text

    @tool
    def shell_in_thread(self, session: Session[None], line: str) -> str:
        """Run a line from a plain method."""
        return session.sandbox.from_thread(session.sandbox.exec(line)).text

    @tool
    async def careless(self, session: Session[None], line: str) -> str:
        """Run a line, whatever happens."""
        try:
            return (await session.sandbox.exec(line)).text
        except Exception as error:
            raise ToolError("something broke") from error

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float((await session.sandbox.exec("grep -q done notes")).ok)


class Careless(Desk):
    """Its verifier gives 0.0 for whatever goes wrong."""

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        try:
            return await super().verify(session, rollout)
        except Exception:
            return 0.0


class Lends(Environment[None]):
    """The agent works in its sandbox."""

    sandbox = SandboxSpec(image="lent", lent=True, workdir="/work")

    async def opening(self, session: Session[None]) -> str:
        await session.sandbox.files.write("task", "do it")
        return "Work in the sandbox."

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(await session.sandbox.files.read_text("answer") == "42")


@asynccontextmanager
async def desk(
    environment: Environment[Any], service: StandIn, **config: Any
) -> AsyncIterator[Served]:
    config = {"sandboxes": {"sandbox": "boxes"}} | config
    served = ResourceService(EnvironmentConfig(**config), "e", "e-0", environment=environment)
    directory = PeerDirectory()
    directory.add_direct(instance(service), {SANDBOX_SERVICE: service})
    await served.open(directory)
    try:
        yield Served(served, directory)
    finally:
        await served.close()
        await directory.close()


async def test_a_sandbox_opens_when_it_is_used_and_ends_with_the_session(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Desk(), service) as e:
        about = await e.resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=TIMEOUT
        )
        assert list(about.sandboxes) == ["boxes"]
        assert about.verify_needs_session
        opened = await e.create()
        assert not service.leases
        assert not opened.sandboxes
        assert (await e.call(opened.session_id, "shell", {"line": "cat notes"})).text == b"one\n"
        line = {"line": "echo done >>notes; cat notes"}
        answer = await e.call(opened.session_id, "shell_in_thread", line)
        assert answer.text == b"one\ndone\n"
        assert (await e.verify(opened.session_id)).reward == 1.0
        assert len(service.leases) == 1
        await e.close(opened.session_id)
        assert not service.leases


async def test_a_sandbox_reaches_the_agent_that_opened_the_session(tmp_path: Path) -> None:
    class Coding(Desk):
        sandbox: SandboxSpec | None = SandboxSpec(lent=True, network="agent")

    service = StandIn(tmp_path)
    async with desk(Coding(), service) as e:
        request = resource_pb2.CreateSessionRequest(
            task=task(), request_id="a", agent="coder", agent_instance_id="coder-1"
        )
        opened = await e.resource.CreateSession(request, timeout=TIMEOUT)
        (asked,) = [
            one for one in service.requests if isinstance(one, sandbox_pb2.CreateSandboxRequest)
        ]
        assert (asked.network.relay.name, asked.network.relay.instance_id) == ("coder", "coder-1")
        await e.close(opened.session_id)


async def test_the_wait_for_a_sandbox_does_not_count_against_the_calls_limit(
    tmp_path: Path,
) -> None:
    paused: list[int] = []

    class Looks(StandIn):
        """Sees how the limit stands while it makes a sandbox."""

        async def CreateSandbox(
            self, request: sandbox_pb2.CreateSandboxRequest, context: CallContext
        ) -> sandbox_pb2.CreateSandboxResponse:
            timer = running_call.get()
            assert timer is not None
            paused.append(timer._pauses)
            return await super().CreateSandbox(request, context)

    async with desk(Desk(), Looks(tmp_path)) as e:
        opened = await e.create()
        await e.call(opened.session_id, "shell", {"line": "true"})
    assert paused == [1]


async def test_two_sessions_share_nothing(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Desk(), service) as e:
        one, other = await e.create(), await e.create()
        await e.call(one.session_id, "shell", {"line": "echo done >>notes"})
        assert (await e.verify(one.session_id)).reward == 1.0
        assert (await e.verify(other.session_id)).reward == 0.0
    assert not service.leases


async def test_a_lent_sandbox_is_granted_with_the_session(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Lends(), service) as e:
        opened = await e.create()
        (grant,) = opened.sandboxes
        (sandbox_id,) = service.leases
        assert (grant.role, grant.sandbox.sandbox_id) == ("workspace", sandbox_id)
        (made,) = service.answers.values()
        assert grant.lease == made.grant.lease
        assert made.own_lease not in opened.SerializeToString()
        assert (tmp_path / sandbox_id / "task").read_text() == "do it"
        (tmp_path / sandbox_id / "answer").write_text("42")
        assert (await e.verify(opened.session_id)).reward == 1.0


async def test_a_session_is_not_idle_while_its_agent_works_in_a_lent_sandbox(
    tmp_path: Path,
) -> None:
    service, now = StandIn(tmp_path), [0.0]
    served = ResourceService(
        EnvironmentConfig(sandboxes={"sandbox": "boxes"}, session_idle_s=60),
        "e",
        "e-0",
        environment=Lends(),
        clock=lambda: now[0],
    )
    directory = PeerDirectory()
    directory.add_direct(instance(service), {SANDBOX_SERVICE: service})
    await served.open(directory)
    try:
        e = Served(served, directory)
        await e.create()
        for used in (1, 2):
            now[0] += 60
            service.used_unix_nano = used
            assert await served.sessions.sweep() == 0
        now[0] += 59
        assert await served.sessions.sweep() == 0
        now[0] += 1
        assert await served.sessions.sweep() == 1, "nobody has worked in it since"
        assert not service.leases
    finally:
        await served.close()
        await directory.close()


async def test_answers_name_the_sandboxes_that_were_opened_once(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Desk(), service) as e:
        opened = await e.create()
        first = await e.call(opened.session_id, "shell", {"line": "true"})
        assert [(one.role, one.sandbox.image) for one in first.sandboxes] == [
            ("workspace", "small")
        ]
        second = await e.call(opened.session_id, "shell", {"line": "true"})
        assert not second.sandboxes
    async with desk(Lends(), StandIn(tmp_path / "lent")) as e:
        opened = await e.create()
        request = verify_pb2.VerifyRequest(
            task=task(),
            session_id=opened.session_id,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        (tmp_path / "lent" / opened.sandboxes[0].sandbox.sandbox_id / "answer").write_text("42")
        assert not (await e.verifier.Verify(request, timeout=TIMEOUT)).sandboxes
    async with desk(Desk(), StandIn(tmp_path / "judged")) as e:
        opened = await e.create()
        request.session_id = opened.session_id
        judged = await e.verifier.Verify(request, timeout=TIMEOUT)
        assert [one.role for one in judged.sandboxes] == ["workspace"]


async def test_a_session_whose_lent_sandbox_does_not_open_does_not_open(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Lends(), service) as e:
        service.faults["CreateSandbox"] = [error("SANDBOX_IMAGE_NOT_FOUND")]
        with pytest.raises(MeshError) as raised:
            await e.create()
        assert raised.value.reason_name == "SANDBOX_IMAGE_NOT_FOUND"
        assert len((await e.create()).sandboxes) == 1


@pytest.mark.parametrize("environment", [Desk(), Careless()])
async def test_a_lost_sandbox_gives_no_verdict(
    tmp_path: Path, environment: Environment[None]
) -> None:
    service = StandIn(tmp_path)
    async with desk(environment, service) as e:
        opened = await e.create()
        await e.call(opened.session_id, "shell", {"line": "true"})
        service.lose()
        with pytest.raises(MeshError) as raised:
            await e.verify(opened.session_id)
        assert raised.value.reason_name == "SANDBOX_LOST"


async def test_a_sandbox_lost_in_a_tool_gives_no_verdict_either(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Careless(), service) as e:
        opened = await e.create()
        service.ends_under = "sleep 0"
        answer = await e.call(opened.session_id, "careless", {"line": "sleep 0"})
        assert answer.outcome == rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
        with pytest.raises(MeshError) as raised:
            await e.verify(opened.session_id)
        assert raised.value.reason_name == "SANDBOX_LOST"


async def test_a_sandbox_that_does_not_open_gives_no_verdict(tmp_path: Path) -> None:
    service = StandIn(tmp_path)
    async with desk(Careless(), service) as e:
        opened = await e.create()
        service.faults["CreateSandbox"] = [error("SANDBOX_LIMIT")]
        with pytest.raises(MeshError) as raised:
            await e.verify(opened.session_id)
        assert raised.value.reason_name == "SANDBOX_LIMIT"


async def test_a_verifier_does_not_judge_a_new_sandbox_for_one_that_is_gone(
    tmp_path: Path,
) -> None:
    class Counts(Careless):
        """Has a state that is kept, beside its sandbox."""

        state = dict

    service = StandIn(tmp_path)
    async with desk(Counts(), service) as e:
        request = verify_pb2.VerifyRequest(
            task=task(), stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED
        )
        with pytest.raises(MeshError) as raised:
            await e.verifier.Verify(request, timeout=TIMEOUT)
        assert raised.value.reason_name == "SESSION_NOT_FOUND"
        request.final_state.state_json = b"{}"
        with pytest.raises(MeshError) as raised:
            await e.verifier.Verify(request, timeout=TIMEOUT)
        assert raised.value.reason_name == "VERIFIER_FAULT"
        assert "ended with the session" in raised.value.message
        assert not service.answers


async def test_a_verifier_that_does_without_the_session_gets_a_new_sandbox(tmp_path: Path) -> None:
    class Runs(Environment[None]):
        """Runs the answer."""

        sandboxes: Mapping[str, SandboxSpec] = MappingProxyType({"tests": SandboxSpec()})
        verify_needs_session = False

        async def verify(self, session: Session[None], rollout: Rollout) -> float:
            return float((await session.sandboxes["tests"].exec("true")).ok)

    service = StandIn(tmp_path)
    async with desk(Runs(), service) as e:
        assert (await e.verify()).reward == 1.0
        assert len(service.answers) == 1
        assert not service.leases


def test_a_verifier_may_not_judge_new_sandboxes_for_those_of_the_agent() -> None:
    class Wrong(Lends):
        """Judges what it did not see."""

        verify_needs_session = False

        async def verify(self, session: Session[None], rollout: Rollout) -> float:
            return float(await session.sandbox.files.read_text("answer") == "42")

    with pytest.raises(ConfigError, match="uses a sandbox"):
        ResourceService(EnvironmentConfig(), "e", "e-0", environment=Wrong())


async def test_a_task_chooses_the_image(tmp_path: Path) -> None:
    class Images(Desk):
        """Its tasks bring their images."""

        def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
            assert self.sandbox is not None
            return {"workspace": replace(self.sandbox, image=task.payload["image"])}

    service = StandIn(tmp_path)
    async with desk(Images(), service) as e:
        opened = await e.create(task(image="repo:7"))
        await e.call(opened.session_id, "shell", {"line": "true"})
        (made,) = service.answers.values()
        assert made.grant.sandbox.image == "repo:7"


async def test_what_was_not_declared_is_said(tmp_path: Path) -> None:
    class Undeclared(Environment[None]):
        """Uses what it does not declare."""

        sandboxes: Mapping[str, SandboxSpec] = MappingProxyType({"tests": SandboxSpec()})

        @tool
        async def role(self, session: Session[None]) -> str:
            """Ask for another role."""
            return repr(session.sandbox)

        @tool
        async def service(self, session: Session[None]) -> str:
            """Ask for another service."""
            return repr(session.sandboxes.add("x", SandboxSpec(service="other")))

        @tool
        async def twice(self, session: Session[None]) -> str:
            """Ask twice."""
            session.sandboxes.add("x", SandboxSpec())
            return repr(session.sandboxes.add("x", SandboxSpec()))

        def verify(self, session: Session[None], rollout: Rollout) -> float:
            return 0.0

    async with desk(Undeclared(), StandIn(tmp_path)) as e:
        opened = await e.create()
        for name, words in (
            ("role", "sandbox = SandboxSpec"),
            ("service", "does not declare"),
            ("twice", "already"),
        ):
            with pytest.raises(MeshError, match=words):
                await e.call(opened.session_id, name)


async def test_a_service_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"service with this name under 'sandboxes', or map the name"
    ):
        async with desk(Desk(), StandIn(tmp_path), sandboxes={"sandbox": "nowhere"}):
            pass
    with pytest.raises(ConfigError, match="declares no sandbox service 'sandboxx'"):
        async with desk(Desk(), StandIn(tmp_path), sandboxes={"sandboxx": "boxes"}):
            pass
