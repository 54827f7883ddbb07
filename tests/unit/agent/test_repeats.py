"""Repeats of a task ask for the same, though their plan is read once."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_responses import new_message
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, ok, says

ITEMS = [new_message("user", text) for text in ("one", "two", "three")]


class Wanders(Agent):
    """Calls models in all the ways that there are."""

    async def run(self, context: RolloutContext) -> Completion:
        asked = await context.call_model()
        await context.call_tools(asked)
        await context.call_model([new_message("user", "and?")])
        await context.call_model(parent="start")
        await context.call_model(context.items, detached=True)
        await context.call_model([*context.items[:1], *ITEMS], detached=True, actor="other")
        await context.call_model(params={"temperature": 0.1})
        await context.call_model(role="critic", actor="critic")
        return Completion(rollout_pb2.STOP_REASON_MODEL_FINISHED)


@pytest.mark.parametrize("items", [(), ITEMS])
@pytest.mark.parametrize("config", [{}, {"max_total_output_tokens": 60, "system_prompt": "Be."}])
async def test_repeats_ask_for_the_same(items: Any, config: dict[str, Any]) -> None:
    async def add(arguments: bytes) -> Any:
        return ok("4")

    environment = TinyEnvironment(tools={"add": add}, items=items)
    answers = [calls(call("add")), *[says(f"{n}") for n in range(5)]]
    models = {
        "policy": ScriptedModel(answers * 3),
        "critic": ScriptedModel([says("fine")], repeat=True),
    }
    settings = AgentConfig(use=f"{__name__}:Wanders", max_steps=None, **config)
    async with running("direct", environment, models, settings) as mesh:
        for _ in range(3):
            await mesh.run(ask())
    asked = [one.SerializeToString(deterministic=True) for one in models["policy"].requests]
    assert len(asked) == 18
    assert asked[:6] == asked[6:12] == asked[12:]
    critic = [one.SerializeToString(deterministic=True) for one in models["critic"].requests]
    assert critic[0] == critic[1] == critic[2]
