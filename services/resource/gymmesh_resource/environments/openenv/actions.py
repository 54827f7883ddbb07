"""The actions of an OpenEnv server as function tools. Pure.

one action class              the tool `step`, whose parameters are the class's fields
a union of action classes     a tool for each
MCP actions                   the server's own tools, called by `call_tool`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_resource.environments._server_tools import ServerTool, offer

# Every action class inherits it; it says nothing to a model.
_METADATA: Final = "metadata"
_MCP_TYPES: Final = ("call_tool", "list_tools")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
LIST_TOOLS: Final = {"type": "list_tools"}


@dataclass(frozen=True, slots=True)
class OfferedAction:
    """A tool as the model sees it, and the action that a call of it is.

    fixed: the action's fields that the tool stands for. mcp_name: the server's name of an MCP tool.
    """

    function: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    mcp_name: str | None = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return str(self.function["name"])

    def action(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The action of a call with these arguments."""
        if self.mcp_name is not None:
            return {"type": "call_tool", "tool_name": self.mcp_name, "arguments": dict(arguments)}
        return {**arguments, **self.fixed}

    def is_about(self, problem: object, action: Mapping[str, Any]) -> bool:
        """Whether a problem that the server found is one of this action, by its place: a field
        that the model wrote or left out. The server's own models fail in the same way.
        """
        place = problem.get("loc") if isinstance(problem, dict) else None
        if not isinstance(place, list):
            return False
        properties = self.function["parameters"].get("properties", {})
        return not place or place[0] in properties or place[0] in action


class UnknownSchema(Exception):
    """The server's schema of actions cannot be offered as tools; one clause says why."""


def takes_mcp(action: Mapping[str, Any]) -> bool:
    """Whether the schema of actions is that of MCP actions, alone or in a union, or of the base
    class of all. Raises UnknownSchema.
    """
    branches = _branches(action)
    if any(_kind(one) in _MCP_TYPES for one in branches or [action]):
        return True
    return not (set(_properties(action)) - {_METADATA}) and not branches


def offered_actions(action: Mapping[str, Any]) -> list[OfferedAction]:
    """The tools for a schema of actions. Raises UnknownSchema."""
    branches = _branches(action)
    if not branches:
        return [OfferedAction(_function("step", action, action, ()))]
    marks = _marks(branches)
    tools = [ServerTool(_branch_name(branch, marks), "", {"type": "object"}) for branch in branches]
    offered = []
    for named, branch in zip(offer({"": tools}), branches, strict=True):
        fixed = {mark: _constant(_properties(branch)[mark]) for mark in marks}
        function = _function(named.name, branch, action, tuple(fixed))
        offered.append(OfferedAction(function, fixed))
    return offered


def offered_mcp_tools(listed: object) -> list[OfferedAction]:
    """The tools that a server lists for its MCP actions. Raises UnknownSchema."""
    if not isinstance(listed, list):
        raise UnknownSchema("it lists no tools")
    tools = []
    for tool in listed:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            raise UnknownSchema("it lists a tool without a name")
        schema = tool.get("input_schema", tool.get("inputSchema"))
        tools.append(
            ServerTool(
                tool["name"],
                str(tool.get("description") or ""),
                schema if isinstance(schema, dict) else {"type": "object"},
            )
        )
    return [OfferedAction(one.function, mcp_name=one.tool.name) for one in offer({"": tools})]


def _function(
    name: str, schema: Mapping[str, Any], whole: Mapping[str, Any], fixed: Sequence[str]
) -> dict[str, Any]:
    properties, required = _properties(schema), _required(schema)
    hidden = {*fixed, *({_METADATA} - set(required))}
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {key: one for key, one in properties.items() if key not in hidden},
        "required": [key for key in required if key not in hidden],
    }
    if schema.get("additionalProperties") is False:
        parameters["additionalProperties"] = False
    if isinstance(whole.get("$defs"), dict):
        parameters["$defs"] = whole["$defs"]
    return {
        "type": "function",
        "name": name,
        "description": str(schema.get("description") or ""),
        "parameters": parameters,
        "strict": False,
    }


def _branches(action: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The classes of a union; none: the schema is one class."""
    union = action.get("oneOf", action.get("anyOf"))
    if not isinstance(union, list):
        return []
    branches = [_resolved(branch, action) for branch in union]
    if not all(isinstance(branch.get("properties"), dict) for branch in branches):
        raise UnknownSchema(
            "the schema of its actions is a union with a part that is not an object"
        )
    return branches


def _resolved(branch: object, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(branch, dict):
        return {}
    reference = branch.get("$ref")
    if not isinstance(reference, str):
        return branch
    defined = whole.get("$defs")
    found = defined.get(reference.rpartition("/")[2]) if isinstance(defined, dict) else None
    return found if isinstance(found, dict) else {}


def _marks(branches: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that each class of a union has, with one value of its own."""
    first = _properties(branches[0])
    return [
        name
        for name in first
        if all(
            isinstance(one := _properties(branch).get(name), dict) and _constant(one) is not None
            for branch in branches
        )
    ]


def _branch_name(branch: Mapping[str, Any], marks: Sequence[str]) -> str:
    values = [str(_constant(_properties(branch)[mark])) for mark in marks]
    return "_".join(values) or _WORD.sub("_", str(branch.get("title") or "step")).lower()


def _constant(schema: Mapping[str, Any]) -> Any:
    """The only value that a field may have; None: it may have several."""
    if "const" in schema:
        return schema["const"]
    values = schema.get("enum")
    return values[0] if isinstance(values, list) and len(values) == 1 else None


def _kind(schema: Mapping[str, Any]) -> Any:
    kind = _properties(schema).get("type")
    return _constant(kind) if isinstance(kind, dict) else None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: Mapping[str, Any]) -> list[Any]:
    required = schema.get("required")
    return required if isinstance(required, list) else []
