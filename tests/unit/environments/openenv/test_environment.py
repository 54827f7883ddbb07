"""The openenv environment against a server that speaks OpenEnv's protocol."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.openenv import OpenEnvEnvironment
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import loads, params_to_dict, text_of
from gymmesh_runtime.errors import MeshError
from tests.support.images import png
from tests.unit.environments.openenv.openenv_server import (
    Counting,
    OpenEnvServer,
    Refusal,
    answer,
    serving,
)
from tests.unit.resource.served import Served, served, task

Reason = errors_pb2.ErrorReason
OK = rollout_pb2.TOOL_OUTCOME_OK
ERROR = rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
VERIFIED = rollout_pb2.VERIFICATION_STATUS_VERIFIED
SKIPPED = rollout_pb2.VERIFICATION_STATUS_SKIPPED
PNG = png()


@asynccontextmanager
async def bridged(server: OpenEnvServer, **config: Any) -> AsyncIterator[Served]:
    options = config.pop("options", {})
    async with (
        serving(server.app) as url,
        served(OpenEnvEnvironment(url=url, **options), **config) as mesh,
    ):
        yield mesh


async def fails(awaited: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await awaited
    return caught.value


async def moved(mesh: Served, session: str, amount: Any) -> resource_pb2.CallToolResponse:
    return await mesh.call(session, "step", {"amount": amount})


# ---- the course of an episode --------------------------------------------------------------------
async def test_an_episode_from_reset_to_the_sum_of_its_rewards() -> None:
    server = OpenEnvServer()
    async with bridged(server, options={"headers": {"X-Test": "yes"}}) as mesh:
        opened = await mesh.create()
        session = opened.session_id
        assert [tool.function.name for tool in opened.tools] == ["step"]
        parameters = loads(opened.tools[0].function.parameters_json)
        assert parameters["properties"].keys() == {"amount"}
        assert opened.tools[0].function.description == "Add to the count."
        (first,) = opened.items
        assert (first.message.role, loads(text_of(first))) == ("user", {"count": 0, "target": 3})
        one, two = await moved(mesh, session, 1), await moved(mesh, session, 2)
        verdict = await mesh.verify(session)
        await mesh.close(session)
    assert (loads(one.text), one.reward, one.done, one.outcome) == ({"count": 1}, 0.5, False, OK)
    assert (loads(two.text), two.reward, two.done) == ({"count": 3}, 1.0, True)
    assert (verdict.status, verdict.reward) == (VERIFIED, 1.5)
    evidence = loads(verdict.evidence_json)
    assert evidence["state"] == {"episode_id": None, "step_count": 2, "count": 3}
    assert evidence["observation"] == {"count": 3}
    assert (evidence["rewards"], evidence["done"], evidence["steps"]) == ([0.5, 1.0], True, 2)
    assert [one["type"] for one in server.messages] == ["reset", "step", "step", "state", "close"]
    assert server.headers == ["yes"]
    assert server.open == 0


@pytest.mark.parametrize(("rule", "expected"), [("sum", 3.5), ("last", 1.0), ("max", 2.5)])
async def test_the_rule_makes_the_reward_of_the_steps_rewards(rule: str, expected: float) -> None:
    async with bridged(OpenEnvServer(), options={"reward": rule}) as mesh:
        session = (await mesh.create(task(openenv={"reset": {"target": 7}}))).session_id
        for amount in (5, 2):
            await moved(mesh, session, amount)
        assert (await mesh.verify(session)).reward == expected


async def test_an_episode_without_rewards_is_not_judged_unless_it_is_said_how() -> None:
    async with bridged(OpenEnvServer()) as mesh:
        session = (await mesh.create()).session_id
        verdict = await mesh.verify(session)
    assert (verdict.status, verdict.HasField("reward")) == (SKIPPED, False)
    async with bridged(OpenEnvServer(), options={"unrewarded": -1.0}) as mesh:
        session = (await mesh.create()).session_id
        assert (await mesh.verify(session)).reward == -1.0


async def test_reset_gets_what_the_row_says() -> None:
    server = OpenEnvServer()
    row = {"seed": 5, "episode_id": "mine", "reset": {"target": 9, "level": {"a": [1]}}}
    async with bridged(server) as mesh:
        await mesh.create(task(openenv=row))
        with_seed = task()
        with_seed.seed = 8
        await mesh.create(with_seed)
        await mesh.create()
    assert [one["data"] for one in server.messages if one["type"] == "reset"] == [
        {"target": 9, "level": {"a": [1]}, "seed": 5, "episode_id": "mine"},
        {"seed": 8},
        {},
    ]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ([], "openenv"),
        ({"sead": 1}, "openenv.sead"),
        ({"seed": -1}, "openenv.seed"),
        ({"seed": True}, "openenv.seed"),
        ({"episode_id": "x" * 256}, "openenv.episode_id"),
        ({"reset": [1]}, "openenv.reset"),
    ],
)
async def test_a_row_that_cannot_be_meant_is_refused(row: Any, field: str) -> None:
    async with bridged(OpenEnvServer()) as mesh:
        error = await fails(mesh.create(task(openenv=row)))
    assert (error.reason, error.metadata["field"]) == (Reason.ERROR_REASON_TASK_INVALID, field)


async def test_example_tasks_are_seeds() -> None:
    tasks = example_tasks(OpenEnvEnvironment(url="ws://127.0.0.1:1/ws", tasks=3, prompt="Go."), "o")
    assert [loads(one.payload_json)["openenv"] for one in tasks] == [{"seed": n} for n in range(3)]
    assert {params_to_dict(one.params)["input"] for one in tasks} == {"Go."}


async def test_sessions_side_by_side_are_episodes_of_their_own() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        one, other = (await mesh.create()).session_id, (await mesh.create()).session_id
        await asyncio.gather(moved(mesh, one, 1), moved(mesh, other, 3))
        rewards = [(await mesh.verify(session)).reward for session in (one, other)]
    assert rewards == [0.5, 1.5]
    assert (server.peak, server.schemas) == (2, 1)


async def test_after_the_end_nothing_more_is_done() -> None:
    server = OpenEnvServer()
    async with bridged(server) as mesh:
        session = (await mesh.create()).session_id
        assert (await moved(mesh, session, 3)).done
        late = await moved(mesh, session, 3)
        assert (late.outcome, late.HasField("reward")) == (ERROR, False)
        assert (await mesh.verify(session)).reward == 1.5


# ---- what the model sees -------------------------------------------------------------------------
async def test_metadata_is_shown_where_it_is_asked_for() -> None:
    async with bridged(OpenEnvServer(), options={"show_metadata": True}) as mesh:
        (first,) = (await mesh.create()).items
    assert loads(text_of(first))["metadata"] == {"secret": 7}


async def test_images_are_shown_as_images() -> None:
    encoded = base64.b64encode(PNG).decode()

    class Seeing(Counting):
        def reset(self, data: dict[str, Any]) -> dict[str, Any]:
            return answer({"screen": {"png": encoded}, "text": "R0lGOD is no image"})

        def step(self, data: dict[str, Any]) -> dict[str, Any]:
            return answer({"shots": [f"data:image/gif;base64,{encoded}", "x"]})

    async with bridged(OpenEnvServer(Seeing)) as mesh:
        opened = await mesh.create()
        seen = await moved(mesh, opened.session_id, 1)
    text, image = opened.items[0].message.parts.parts
    assert loads(text.input_text.text) == {
        "screen": {"png": "[image 1]"},
        "text": "R0lGOD is no image",
    }
    assert "image/png" in str(image)
    assert len(seen.parts.parts) == 2
    assert loads(seen.parts.parts[0].input_text.text) == {"shots": ["[image 1]", "x"]}


async def test_an_action_that_does_not_fit_is_shown_to_the_model() -> None:
    async with bridged(OpenEnvServer()) as mesh:
        session = (await mesh.create()).session_id
        bad = await moved(mesh, session, "one")
        more = await mesh.call(session, "step", {"amount": 1, "speed": 2})
        assert (await moved(mesh, session, 3)).done
    assert bad.outcome == ERROR
    assert "amount: Field required" in bad.text.decode()
    assert "speed: Extra inputs are not permitted" in more.text.decode()


async def test_a_model_of_the_server_that_does_not_fit_is_a_fault() -> None:
    class Broken(Counting):
        def step(self, data: dict[str, Any]) -> dict[str, Any]:
            problem = {"loc": ["board"], "msg": "Field required", "type": "missing"}
            raise Refusal("VALIDATION_ERROR", "Invalid message", errors=[problem])

    async with bridged(OpenEnvServer(Broken)) as mesh:
        error = await fails(moved(mesh, (await mesh.create()).session_id, 1))
    assert error.reason == Reason.ERROR_REASON_ENVIRONMENT_FAULT


async def test_an_exception_in_a_step_is_a_fault_or_shown_as_it_is_chosen() -> None:
    class Raising(Counting):
        def step(self, data: dict[str, Any]) -> dict[str, Any]:
            raise Refusal("EXECUTION_ERROR", "no such move")

    async with bridged(OpenEnvServer(Raising)) as mesh:
        error = await fails(moved(mesh, (await mesh.create()).session_id, 1))
        assert error.reason == Reason.ERROR_REASON_ENVIRONMENT_FAULT
        assert "no such move" in error.message
    async with bridged(OpenEnvServer(Raising), options={"execution_errors": "show"}) as mesh:
        shown = await moved(mesh, (await mesh.create()).session_id, 1)
    assert (shown.outcome, shown.text) == (ERROR, b"no such move")


async def test_each_class_of_a_union_is_a_tool() -> None:
    def action(name: str, key: str) -> dict[str, Any]:
        properties = {"kind": {"const": name, "type": "string"}, key: {"$ref": "#/$defs/Place"}}
        return {"type": "object", "title": name, "properties": properties, "required": [key]}

    schema = {
        "oneOf": [{"$ref": "#/$defs/Go"}, {"$ref": "#/$defs/Take"}],
        "$defs": {
            "Go": action("go", "to"),
            "Take": action("take", "what"),
            "Place": {"type": "string"},
        },
    }

    class Walking(Counting):
        def step(self, data: dict[str, Any]) -> dict[str, Any]:
            return answer(data, 1)

    async with bridged(OpenEnvServer(Walking, schema)) as mesh:
        opened = await mesh.create()
        assert [tool.function.name for tool in opened.tools] == ["go", "take"]
        assert loads(opened.tools[0].function.parameters_json)["properties"].keys() == {"to"}
        gone = await mesh.call(opened.session_id, "go", {"to": "door"})
    assert loads(gone.text) == {"to": "door", "kind": "go"}


# ---- MCP environments ----------------------------------------------------------------------------
CALL_TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "default": "call_tool", "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}


class Tools(Counting):
    """An MCP environment."""

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        if data["type"] == "list_tools":
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
            names = ("add.it", "fail", "refuse", "lose", "plain")
            tools = [{"name": one, "description": "d", "input_schema": schema} for one in names]
            return answer({"tools": tools, "metadata": {}})
        name, arguments = data["tool_name"], data["arguments"]
        block = {"type": "text", "text": json.dumps(arguments)}
        image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
        result: Any = {"content": [block, image], "is_error": False, "data": 1}
        error = None
        if name == "fail":
            result = {"content": [block], "is_error": True}
        elif name == "plain":
            result = {"rows": [1]}
        elif name in ("refuse", "lose"):
            kind = "invalid_args" if name == "refuse" else "transport_error"
            result, error = None, {"error_type": kind, "message": "not so"}
        return answer({"tool_name": name, "result": result, "error": error}, 0.25)


async def test_mcp_tools_are_the_sessions_tools() -> None:
    server = OpenEnvServer(Tools, CALL_TOOL)
    async with bridged(server) as mesh:
        opened = await mesh.create()
        session = opened.session_id
        names = [tool.function.name for tool in opened.tools]
        assert names == ["add_it", "fail", "refuse", "lose", "plain"]
        added = await mesh.call(session, "add_it", {"a": 1})
        assert added.parts.parts[0].input_text.text == '{"a": 1}'
        assert (len(added.parts.parts), added.reward) == (2, 0.25)
        failed = await mesh.call(session, "fail", {"a": 2})
        assert (failed.outcome, failed.text, failed.reward) == (ERROR, b'{"a": 2}', 0.25)
        refused = await mesh.call(session, "refuse")
        assert (refused.outcome, refused.text) == (ERROR, b"not so")
        plain = await mesh.call(session, "plain")
        assert loads(plain.text) == {"result": {"rows": [1]}}
        assert (await mesh.verify(session)).reward == 1.0
        lost = await fails(mesh.call(session, "lose"))
    assert lost.reason == Reason.ERROR_REASON_ENVIRONMENT_FAULT
    assert server.messages[2]["data"] == {
        "type": "call_tool",
        "tool_name": "add.it",
        "arguments": {"a": 1},
    }
