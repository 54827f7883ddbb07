"""Tools that one session alone has, and calls of the task's own tools."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource import Environment, Rollout, Session, Task, ToolError, tool
from gymmesh_responses import params_from_json
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import served, task


def function(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "name": name, "parameters": parameters}


class Doors(Environment[list[str]]):
    """Each session has the doors that its task names."""

    state = list

    def __init__(self) -> None:
        self.closed = 0

    def create_state(self, task: Task, seed: int) -> list[str]:
        return list(task.payload.get("doors", []))

    def close_session(self, session: Session[list[str]]) -> None:
        self.closed += 1

    def session_tools(self, session: Session[list[str]]) -> list[dict[str, Any]]:
        return [function(f"open_{name}", wide={"type": "boolean"}) for name in session.state]

    async def call_other(
        self, session: Session[list[str]], name: str, arguments: dict[str, Any]
    ) -> Any:
        if name == "open_jammed":
            raise ToolError("It is jammed.")
        return {"name": name, "arguments": arguments}

    @tool
    async def knock(self) -> str:
        """Knock."""
        return "who is there"

    def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 1.0


class Deaf(Environment[None]):
    """Answers no further tools."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


def with_own_tool(of: rollout_pb2.Task) -> rollout_pb2.Task:
    own = rollout_pb2.Task()
    own.CopyFrom(of)
    own.params.CopyFrom(params_from_json({"input": "x", "tools": [function("own")]}))
    return own


async def test_each_session_has_its_own_tools() -> None:
    async with served(Doors()) as mesh:
        red = await mesh.create(task("t", doors=["red", "jammed"]))
        blue = await mesh.create(task("t", doors=["blue"]))
        names = [tool.function.name for tool in red.tools]
        opened = await mesh.call(red.session_id, "open_red", {"wide": 1})
        jammed = await mesh.call(red.session_id, "open_jammed")
        elsewhere = await mesh.call(blue.session_id, "open_red")
        knocked = await mesh.call(blue.session_id, "knock")
    assert names == ["knock", "open_red", "open_jammed"]
    assert opened.text == b'{"name":"open_red","arguments":{"wide":1}}'
    assert jammed.outcome == rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
    assert elsewhere.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
    assert b"knock, open_blue" in elsewhere.text
    assert knocked.text == b"who is there"


async def test_the_tasks_own_tools_are_called_too() -> None:
    async with served(Doors()) as mesh:
        session = await mesh.create(with_own_tool(task("t")))
        answer = await mesh.call(session.session_id, "own", {"a": [1]})
        bad = await mesh.call(session.session_id, "own", b"[1]")
    assert answer.text == b'{"name":"own","arguments":{"a":[1]}}'
    assert bad.outcome == rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS


async def test_without_call_other_they_are_unknown() -> None:
    async with served(Deaf()) as mesh:
        session = await mesh.create(with_own_tool(task("t")))
        answer = await mesh.call(session.session_id, "own")
    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL


@pytest.mark.parametrize(
    "tools",
    [
        [function("knock")],
        [{"type": "function"}],
        [{"type": "x"}],
        [function("open.door")],
        [function("o" * 65)],
    ],
)
async def test_a_bad_list_of_tools_is_a_fault_and_leaves_no_session(
    tools: list[dict[str, Any]],
) -> None:
    class Bad(Doors):
        """Offers what cannot be offered."""

        def session_tools(self, session: Session[list[str]]) -> list[dict[str, Any]]:
            return tools

    environment = Bad()
    async with served(environment) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create()
        assert len(mesh.service.sessions) == 0
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert caught.value.metadata["stage"] == "session_tools"
    assert environment.closed == 1
