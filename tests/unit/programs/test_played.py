"""Rollouts whose program is the environment itself: a real gateway, a real verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.config import GatewayConfig
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_agent.programs.options import read_options
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.authoring.validating import problems_of
from gymmesh_mesh.compose import Objects
from gymmesh_model.backends.base import Backend, BackendCall
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_resource import Environment, ModelEndpoint, Rollout, Session, Task, Verdict
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.errors import MeshError, from_status
from tests.unit.programs.rollouts import AGENT, TIMEOUT

Events = Sequence[rollout_pb2.RolloutEvent]


@dataclass
class Talk:
    """What was said."""

    answers: list[str] = field(default_factory=list)


class Interview(Environment[Talk]):
    """Asks the model as many questions as its task says, itself."""

    state = Talk
    version = "3"
    ended: asyncio.Event

    def __init__(self) -> None:
        type(self).ended = asyncio.Event()

    async def play(self, session: Session[Talk], endpoint: ModelEndpoint) -> None:
        payload, messages = session.task.payload, [{"role": "user", "content": "Begin."}]
        try:
            async with AsyncOpenAI(
                base_url=endpoint.base_url, api_key=endpoint.key, max_retries=0
            ) as client:
                for _ in range(payload.get("questions", 2)):
                    made: Any = client.chat.completions.create
                    answer = await made(model=endpoint.model, messages=messages)
                    said = answer.choices[0].message
                    messages += [said.model_dump(exclude_none=True)]
                    messages += [{"role": "user", "content": "And then?"}]
                    session.state.answers.append(said.content)
            if payload.get("breaks"):
                raise OSError("the other side is gone")
            if payload.get("hangs"):
                await asyncio.Event().wait()
        except APIStatusError:
            if not payload.get("takes_it"):
                raise
        finally:
            self.ended.set()

    def verify(self, session: Session[Talk], rollout: Rollout) -> Verdict:
        if not session.state.answers:
            raise RuntimeError("nothing was said")
        return Verdict(len(session.state.answers) / 10, evidence={"said": session.state.answers})


class Silent(Interview):
    """Plays without the model."""

    async def play(self, session: Session[Talk], endpoint: ModelEndpoint) -> None:
        session.state.answers = ["by another model"]


class Quiet(Environment[None]):
    """Does not play."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 0.0


class Failing(Backend):
    """A model service that is broken."""

    calls_endpoint = False
    is_recorded = True

    def __init__(self) -> None:
        self.capabilities = ScriptedBackend([]).capabilities

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        raise MeshError(errors_pb2.ERROR_REASON_MODEL_SERVER_ERROR, "the endpoint failed")


@asynccontextmanager
async def playing(
    environment: Environment[Any],
    backend: Backend | None = None,
    *,
    max_steps: int = 20,
    **more: Any,
) -> AsyncIterator[Any]:
    """The agent's peer."""
    config = MeshConfig(
        environments={"room": EnvironmentConfig()},
        agents={
            "player": AgentConfig(
                use="program", max_steps=max_steps, options={"program": "environment", **more}
            )
        },
    )
    script = backend or ScriptedBackend(["One.", "Two.", "Three.", "Four."])
    objects = Objects(backends={"policy": script}, environments={"room": environment})
    async with embedded(config, objects) as mesh:
        yield mesh.directory.peer(await mesh.directory.pick(AGENT, "player"))


async def run(agent: Any, **row: Any) -> Events:
    task = Task.of({"task_id": "t", "environment": "room", "prompt": "Begin.", **row}).message
    request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r1", attempt=1)
    return [one.event async for one in agent.RunRollout(request, timeout=TIMEOUT)]


def failed(events: Events) -> tuple[str, str]:
    """Boundary and reason."""
    failure = events[-1].failed.failure
    name = rollout_pb2.Boundary.Name(failure.boundary).removeprefix("BOUNDARY_")
    return name, from_status(failure.status).reason_name


def rewards(events: Events) -> list[float]:
    return [one.verified.verification.reward for one in events if one.HasField("verified")]


def details(events: Events) -> list[str]:
    return [one.program_ended.detail for one in events if one.HasField("program_ended")]


async def test_every_call_is_captured_and_the_environment_judges() -> None:
    async with playing(Interview()) as agent:
        events = await run(agent)
    assert (events[0].started.program.name, events[0].started.program.version) == (
        "environment",
        "3",
    )
    calls = [one.model_call_completed for one in events if one.HasField("model_call_completed")]
    assert [call.parent_call_id for call in calls] == ["", calls[0].call_id]
    assert details(events) == ["environment room 3: the episode is over"]
    assert rewards(events) == [0.2]
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    assert not any(b"sk-gymmesh-" in one.SerializeToString() for one in events)


async def test_an_environment_that_does_not_play_is_refused_in_one_sentence() -> None:
    async with playing(Quiet()) as agent:
        events = await run(agent)
    assert failed(events) == ("AGENT", "FIELD_INVALID")
    message = from_status(events[-1].failed.failure.status).message
    assert message.startswith("the option 'program: environment' needs an environment that plays")
    assert not events[-1].failed.failure.retry_safe


async def test_a_fault_of_the_environment_is_one_and_has_no_reward() -> None:
    async with playing(Interview()) as agent:
        events = await run(agent, breaks=True)
    assert failed(events) == ("RESOURCE", "ENVIRONMENT_FAULT")
    assert rewards(events) == []


async def test_a_failed_model_call_is_the_models() -> None:
    async with playing(Interview(), Failing()) as agent:
        events = await run(agent)
    assert failed(events) == ("MODEL", "MODEL_SERVER_ERROR")


async def test_an_episode_without_the_model_is_not_judged() -> None:
    async with playing(Silent()) as agent:
        events = await run(agent)
    assert failed(events) == ("PROGRAM", "PROGRAM_FAILED")
    assert rewards(events) == []


@pytest.mark.parametrize("takes_it", [False, True])
async def test_a_limit_of_the_policy_is_the_stop_reason(takes_it: bool) -> None:
    async with playing(Interview(), max_steps=1) as agent:
        events = await run(agent, takes_it=takes_it)
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_MAX_STEPS
    assert rewards(events) == [0.1]


async def test_its_time_is_up_and_it_is_judged_by_what_there_is() -> None:
    async with playing(Interview(), timeout_s=15.0) as agent:
        events = await run(agent, hangs=True)
        assert Interview.ended.is_set()
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_TIMEOUT
    assert details(events) == ["environment room 3: its timeout_s expired"]
    assert rewards(events) == [0.2]


async def test_its_time_is_up_and_there_is_nothing_to_judge() -> None:
    async with playing(Interview(), timeout_s=15.0) as agent:
        events = await run(agent, hangs=True, questions=0)
    assert failed(events)[0] in ("VERIFIER", "PROGRAM")
    assert rewards(events) == []


async def test_a_cancelled_rollout_ends_the_episode() -> None:
    environment = Interview()
    async with playing(environment) as agent:
        rollout = asyncio.create_task(run(agent, hangs=True, questions=0))
        while not rollout.done():
            await asyncio.sleep(0.05)
            rollout.cancel()
            await asyncio.wait((rollout,), timeout=1.0)
        await asyncio.wait_for(environment.ended.wait(), TIMEOUT)


@pytest.mark.parametrize(
    "more", [{"sandbox": "other"}, {"env": {"A": "b"}}, {"mcp": True}, {"command": "true"}]
)
def test_options_that_go_with_a_sandbox_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"program"):
        read_options({"program": "environment", **more})


def test_a_configuration_whose_environments_do_not_play_has_a_problem() -> None:
    agents = {"player": AgentConfig(use="program", options={"program": "environment"})}
    config = MeshConfig(environments={"math": EnvironmentConfig(use="string_match")}, agents=agents)
    (problem,) = [one for one in problems_of(config) if "program: environment" in one]
    assert problem.startswith("agents.player: the option `program: environment` works only with")
    nemo = {"url": "http://127.0.0.1:1", "protocol": "steps"}
    plays = EnvironmentConfig(use="nemo_gym", options=nemo)
    config = MeshConfig(environments={"nemo": plays}, agents=agents)
    assert not [one for one in problems_of(config) if "program: environment" in one]


@pytest.mark.parametrize(
    ("listen", "target", "url"),
    [
        ("127.0.0.1:1234", "direct:environment-room-0", "http://127.0.0.1:1234"),
        ("127.0.0.1:1234", "unix:/run/a.sock", "http://127.0.0.1:1234"),
        ("127.0.0.1:1234", "127.0.0.1:9000", "http://127.0.0.1:1234"),
        ("127.0.0.1:1234", "10.0.0.1:9000", "http://127.0.0.1:1234"),
        ("127.0.0.1:1234", "10.0.0.2:9000", None),
        ("0.0.0.0:1234", "10.0.0.2:9000", "http://10.0.0.1:1234"),
        ("10.0.0.1:1234", "10.0.0.2:9000", "http://10.0.0.1:1234"),
    ],
)
def test_the_gateways_address_is_that_of_its_own_machine_or_one_that_others_reach(
    listen: str, target: str, url: str | None
) -> None:
    server = GatewayServer(GatewayConfig(), "player", "policy", lambda: None)
    server.address, server.host = listen, "10.0.0.1"
    if url is not None:
        assert server.url_for(target) == url
        return
    with pytest.raises(ValueError, match="listens on"):
        server.url_for(target)
