"""Which servers are asked for their tools, by the schema of their actions."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environments.openenv.actions import takes_mcp
from gymmesh_resource.protocols.openenv.documents import schemas


def of_type(kind: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"type": {"const": kind}, "n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        (of_type("call_tool"), True),
        (of_type("move"), False),
        ({"oneOf": [of_type("move"), of_type("jump")]}, False),
        ({"oneOf": [of_type("list_tools"), of_type("answer"), of_type("call_tool")]}, True),
        ({"properties": {"metadata": {}}}, True),
    ],
)
def test_what_takes_calls_of_mcp_tools(schema: dict[str, Any], takes: bool) -> None:
    assert takes_mcp(schema) is takes


def test_our_own_server_is_asked_for_its_tools() -> None:
    tools = [responses_pb2.FunctionTool(name="calculator"), responses_pb2.FunctionTool(name="look")]
    action: Any = schemas(tools)["action"]
    assert takes_mcp(action)
