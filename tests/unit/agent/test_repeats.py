"""The second rollout of a task, which shares what was read and written for the first."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.params import fill_params, go_on
from gymmesh_agent.scope import RolloutScope
from gymmesh_responses import new_message, params_from_json
from tests.unit.agent.mesh import ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment, call, calls, ok, says

ITEMS = [new_message("user", text) for text in ("one", "two", "three")]


class Wanders(Agent):
    """Calls models in all the ways that there are."""

    async def run(self, scope: RolloutScope) -> Completion:
        asked = await scope.call_model()
        await scope.call_tools(asked)
        await scope.call_model([new_message("user", "and?")])
        await scope.call_model(parent="start")
        await scope.call_model(scope.items, detached=True)
        await scope.call_model([*scope.items[:1], *ITEMS], detached=True, actor="other")
        await scope.call_model(params={"temperature": 0.1})
        await scope.call_model(role="critic", actor="critic")
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


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("tokens_left", [None, 3, 100])
@pytest.mark.parametrize("own", [{}, {"max_output_tokens": 50}, {"tools": None, "x": 1}])
def test_a_conversation_may_be_written_in_two_steps(
    first: int, tokens_left: int | None, own: dict[str, Any]
) -> None:
    base = params_from_json(own)
    base.input_omitted = True
    at_once, begun = type(base)(), type(base)()
    fill_params(at_once, base, ITEMS, tokens_left=tokens_left)
    fill_params(begun, base, ITEMS[:first], None)
    go_on(begun, ITEMS[first:], tokens_left)
    assert begun == at_once
