"""The names under which a model sees the tools of several servers. Pure.

Invariant: names are unique, and model endpoints accept them: at most 64 letters, digits, `_` and
`-`. The order is the servers' own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh_responses import LONGEST_TOOL_NAME, with_name_characters

_MARK = 6


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool as its server lists it; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool under the name that the model sees."""

    name: str
    server: str
    tool: ServerTool

    @property
    def function(self) -> dict[str, Any]:
        """The function tool as Responses JSON. Not strict: the server checks the arguments."""
        schema = dict(self.tool.schema)
        # Endpoints refuse an object without properties, which servers write for "no arguments".
        if schema.get("type", "object") == "object":
            schema = {"type": "object", "properties": {}} | schema
        return {
            "type": "function",
            "name": self.name,
            "description": self.tool.description,
            "parameters": schema,
            "strict": False,
        }


def offer(
    by_server: Mapping[str, Sequence[ServerTool]], *, always_prefix: bool = False
) -> list[OfferedTool]:
    """All tools under unique names: their own, or `server__tool` where two servers share one."""
    tools = [(server, tool) for server, listed in by_server.items() for tool in listed]
    plain = Counter(_fit(tool.name) for _, tool in tools)
    offered: list[OfferedTool] = []
    taken: set[str] = set()
    for server, tool in tools:
        name = _fit(tool.name)
        if always_prefix or plain[name] > 1:
            name = _fit(f"{server}__{tool.name}")
        name = _free(name, f"{server}\0{tool.name}", taken)
        taken.add(name)
        offered.append(OfferedTool(name, server, tool))
    return offered


def _fit(name: str) -> str:
    fitting = with_name_characters(name)
    return fitting if len(fitting) <= LONGEST_TOOL_NAME else _marked(fitting, name)


def _free(name: str, origin: str, taken: Iterable[str]) -> str:
    """StateClasses that differ only in what was replaced get a mark made of what they stand for."""
    tried = name
    while tried in taken:
        origin += "\0"
        tried = _marked(name, origin)
    return tried


def _marked(name: str, origin: str) -> str:
    mark = hashlib.blake2b(origin.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{name[: LONGEST_TOOL_NAME - _MARK - 1]}_{mark}"
