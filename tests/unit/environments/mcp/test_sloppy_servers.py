"""Servers that break the protocol: one bad tool or part does not cost the others."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymmesh_resource.environments._tool_schemas import schema_problem
from gymmesh_resource.environments.mcp import McpEnvironment
from gymmesh_resource.environments.mcp.options import ServerOptions
from gymmesh_resource.environments.mcp.tolerance import mended
from gymmesh_runtime.errors import MeshError
from tests.conftest import require
from tests.unit.resource.served import served, task

require(find_spec("mcp"), "the mcp package", "pip install 'gymmesh[mcp]'")

SERVER = Path(__file__).with_name("sloppy_server.py")
ADD = {"name": "add", "description": "d", "inputSchema": {"type": "object", "properties": {}}}
TEXT = {"content": [{"type": "text", "text": "t"}]}


def bad(schema: Any) -> dict[str, Any]:
    return {"name": "bad", "description": "d", "inputSchema": schema}


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        ([ADD, {"name": "bare"}], ["add", "bare"]),
        ([ADD, bad(None)], ["add", "bad"]),
        ([ADD, bad([])], ["add", "bad"]),
        ([ADD, bad({"type": "object", "required": None})], ["add"]),
        ([ADD, bad({"type": "object", "properties": {"a": {"type": "text"}}})], ["add"]),
        ([ADD, bad({"type": "object", "properties": {"a": {"$ref": "#/$defs/No"}}})], ["add"]),
        ([ADD, {"description": "no name"}, "add"], ["add"]),
    ],
)
async def test_a_bad_tool_does_not_cost_the_others(tools: list[Any], offered: list[str]) -> None:
    assert await _session({"tools": tools}, TEXT) == (offered, "t")


@pytest.mark.parametrize(
    ("answered", "shown"),
    [
        ({"structuredContent": {"v": 1}}, '{"v":1}'),
        ({"isError": False}, ""),
        ({"content": [{"type": "hologram", "data": "é"}]}, '{"type": "hologram", "data": "é"}'),
        ({"content": ["plain"]}, "plain"),
    ],
)
async def test_an_odd_answer_is_shown_to_the_model(answered: Any, shown: str) -> None:
    assert await _session({"tools": [ADD], "nextCursor": ""}, answered) == (["add"], shown)


async def test_an_answer_without_a_meaning_is_a_fault_in_one_line() -> None:
    with pytest.raises(MeshError, match=r"its answer to add breaks the protocol: content") as one:
        await _session({"tools": [ADD]}, {"content": 7})
    assert "\n" not in one.value.message


def test_what_is_right_stays_as_it_is() -> None:
    for result in ({"tools": [ADD], "nextCursor": "2"}, TEXT, {}, {"isError": True, **TEXT}):
        assert mended(result) == result
    assert schema_problem(ADD["inputSchema"]) == ""  # type: ignore[arg-type]
    recursive = {"$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}, "$ref": "#/$defs/A"}
    assert schema_problem(recursive) == ""


async def _session(listed: Any, answered: Any) -> tuple[list[str], str]:
    """The tools of a session, and what a call of `add` answers."""
    command = [sys.executable, str(SERVER), json.dumps(listed), json.dumps(answered)]
    environment = McpEnvironment(servers={"s": ServerOptions(command=command)})
    async with served(environment) as mesh:
        opened = await mesh.create(task())
        called = await mesh.call(opened.session_id, "add", {})
        return [tool.function.name for tool in opened.tools], called.text.decode()
