"""Agents of other people's making, run by the real service over the direct path."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import yaml

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_responses import loads, new_message, params_to_dict, text_of
from gymmesh_runtime.errors import MeshError, from_status
from tests.unit.agent.mesh import BOUND_S, ask, running, until
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, ok, says
from tests.unit.agent.streams import Events, conversation, kinds, model_calls

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_agent"
Stops = rollout_pb2.StopReason


async def run(
    agent: type[Agent], *answers: Any, environment: TinyEnvironment | None = None, **options: Any
) -> Events:
    config = AgentConfig(use=f"{__name__}:{agent.__name__}")
    models = {"policy": ScriptedModel(list(answers) or [says("x")], repeat=True)}
    async with running("direct", environment or TinyEnvironment(), models, config) as mesh:
        return await mesh.run(ask(**options))


def failure_in(events: Events) -> tuple[str, str]:
    failure = events[-1].failed.failure
    return rollout_pb2.Boundary.Name(failure.boundary), from_status(failure.status).reason_name


async def test_solver_and_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])  # where the configuration's path starts from
    settings = yaml.load((EXAMPLE / "agent.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    config = msgspec.convert(settings["agents"]["solver_critic"], AgentConfig)

    async def add(arguments: bytes) -> Any:
        return ok("4")

    models = {
        "policy": ScriptedModel([calls(call("add")), says("5"), says("4")]),
        "critic": ScriptedModel([says("5 is wrong"), says("OK")]),
    }
    environment = TinyEnvironment(tools={"add": add})
    async with running("direct", environment, models, config) as mesh:
        events = await mesh.run()
        about = await mesh.agent.GetAgent(agent_pb2.GetAgentRequest(), timeout=BOUND_S)
    assert list(about.model_roles) == ["policy", "critic"]
    assert events[-1].completed.stop_detail == "the critic accepted round 1"
    seen = [
        (one.call_id, one.parent_call_id, one.actor, one.model, one.trainable, one.detached)
        for one in model_calls(events)
    ]
    assert seen == [
        ("c1", "", "", "policy", True, False),
        ("c2", "c1", "", "policy", True, False),
        ("c3", "c2", "critic", "critic", False, True),
        ("c4", "c2", "", "policy", True, False),
        ("c5", "c4", "critic", "critic", False, True),
    ]
    # The critic gets none of the task's tools and parameters, and only what it was handed.
    critic = params_to_dict(models["critic"].requests[0].params)
    assert len(critic.pop("input")) == 1
    assert set(critic) == {"instructions", "max_output_tokens"}
    # What is judged is the solver's conversation, the critic's remark included.
    judged = [text_of(item) for item in environment.verified[0].transcript]
    assert judged == ["", "4", "5", "5 is wrong", "4"]
    notes = [event for event in events if event.HasField("annotation")]
    assert [note.annotation.key for note in notes] == ["tool_loop.critique"] * 2
    assert all(note.ignorable for note in notes)
    expected = {"round": 0, "text": "5 is wrong"}
    assert loads(notes[0].annotation.value_json) == expected


class Branches(Agent):
    """Two samples from the start, and one that continues the first."""

    async def run(self, context: RolloutContext) -> Completion:
        first, _ = await asyncio.gather(
            context.call_model(), context.call_model(parent="start", params={"temperature": 0.0})
        )
        await context.call_model([new_message("user", "sure?")], parent=first)
        return Completion.by_rule("both seen")


async def test_branches_do_not_see_each_other() -> None:
    events = await run(Branches, says("a"), says("b"), says("c"))
    assert [one.parent_call_id for one in model_calls(events)] == ["", "", "c1"]
    texts = [text_of(item) for item in conversation(events, "c3")]
    assert texts == ["2+2?", "a", "sure?", "c"]


class Careless(Agent):
    """Calls for ever."""

    async def run(self, context: RolloutContext) -> Completion:
        while True:
            await context.call_model()


@pytest.mark.parametrize(
    ("options", "stop", "count"),
    [
        ({"max_steps": 3}, Stops.STOP_REASON_MAX_STEPS, 3),
        ({"max_total_output_tokens": 10}, Stops.STOP_REASON_MAX_OUTPUT_TOKENS, 2),
    ],
)
async def test_limits_hold_for_agents_that_do_not_look(
    options: dict[str, Any], stop: int, count: int
) -> None:
    events = await run(Careless, **options)
    assert events[-1].completed.stop_reason == stop
    assert len(model_calls(events)) == count


class Broken(Agent):
    """Fails in a way that nobody foresaw."""

    async def run(self, context: RolloutContext) -> Completion:
        await context.call_model()
        raise KeyError("secret")


class Forgetful(Agent):
    """Returns nothing."""

    async def run(self, context: RolloutContext) -> Completion:
        return None  # type: ignore[return-value]  # the mistake under test


class SelfCancelled(Agent):
    """Cancels its own task."""

    async def run(self, context: RolloutContext) -> Completion:
        raise asyncio.CancelledError


class Hasty(Agent):
    """Has a time limit of its own, and lets it pass."""

    async def run(self, context: RolloutContext) -> Completion:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(BOUND_S)
        raise AssertionError("it slept for long enough")


class WrongTurn(Agent):
    """Wants a turn of an environment that takes none."""

    async def run(self, context: RolloutContext) -> Completion:
        await context.call_model()
        await context.next_turn()
        raise AssertionError("there was a turn")


class Leaves(Agent):
    """Ends its process, as libraries for command lines do."""

    async def run(self, context: RolloutContext) -> Completion:
        sys.exit(4)


class Panics(Agent):
    """Raises what is no Exception, as extensions written in Rust do."""

    async def run(self, context: RolloutContext) -> Completion:
        raise type("Panic", (BaseException,), {})("the rope is cut")


@pytest.mark.parametrize(
    "agent", [Broken, Forgetful, SelfCancelled, Hasty, WrongTurn, Leaves, Panics]
)
async def test_fault_of_the_agent_is_its_own(
    agent: type[Agent], caplog: pytest.LogCaptureFixture
) -> None:
    events = await run(agent)
    assert failure_in(events) == ("BOUNDARY_AGENT", "AGENT_FAULT")
    if agent is Broken:
        info = from_status(events[-1].failed.failure.status).metadata
        assert info["exception"] == "KeyError: 'secret'"
        assert info["at"].startswith("tests/unit/agent/test_custom_agents.py:")
        # The traceback begins with the author's own line.
        (logged,) = [one for one in caplog.records if one.exc_info]
        assert logged.exc_info is not None
        (frame,) = traceback.extract_tb(logged.exc_info[2])
        assert frame.filename == __file__
    assert "verified" not in kinds(events)


class Stubborn(Agent):
    """Does not stop when it is cancelled, and goes on when its rollout is over."""

    later: ClassVar[list[BaseException]] = []

    async def run(self, context: RolloutContext) -> Completion:
        try:
            await asyncio.sleep(BOUND_S)
        except asyncio.CancelledError:
            await asyncio.sleep(2.0)
        try:
            await context.annotate("late", 1)
        except RuntimeError as error:
            self.later.append(error)
        return Completion.by_rule("late")


async def test_agent_that_does_not_stop_is_left_behind() -> None:
    Stubborn.later.clear()
    events = await run(Stubborn, max_wall_s=1.0)
    assert failure_in(events) == ("BOUNDARY_BUDGET", "BUDGET_SPENT")
    await until(lambda: Stubborn.later)
    assert "closed" in str(Stubborn.later[0])


class Cautious(Agent):
    """Goes another way when a peer fails."""

    async def run(self, context: RolloutContext) -> Completion:
        try:
            await context.call_model(role="nobody")
        except MeshError as error:
            return Completion.by_rule(error.reason_name)
        raise AssertionError("nobody answered")


async def test_agent_may_go_another_way_when_a_peer_fails() -> None:
    events = await run(Cautious)
    assert events[-1].completed.stop_detail == "SERVICE_NOT_FOUND"
    assert events[-2].verified.verification.reward == 1.0
