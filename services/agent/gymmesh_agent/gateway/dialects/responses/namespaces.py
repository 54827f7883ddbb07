"""Tools in namespaces, as Codex offers its own tools and those of MCP servers. Pure.

    {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "read"}]}

Few models support namespaces. So each tool in a namespace becomes a function tool whose name has
both names, and calls get their namespace back in the answer, because Codex looks for `namespace`
and `name`.
"""

from __future__ import annotations

from typing import Any, Final

from gymmesh_agent.gateway.dialects.reading import UnreadableRequest, a_list, an_object, shown
from gymmesh_agent.gateway.request import MAX_TOOLS, Json
from gymmesh_responses import LONGEST_TOOL_NAME, with_name_characters

_BETWEEN: Final = "__"


class ToolNamespaces:
    """The names of one request's tools.

    Attributes:
        names: for a flat name, its namespace and its name in the namespace.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str]] = {}
        self._flat: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}  # how many tools wanted a name

    def flattened(self, tools: list[Any]) -> list[Json]:
        """The tools, with each namespace replaced by its tools. The argument is not changed.

        A tool of a namespace that is not a function stays in a namespace of its own.
        """
        objects = [an_object(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
        self._taken = {tool["name"] for tool in objects if isinstance(tool.get("name"), str)}
        made: list[Json] = []
        for index, tool in enumerate(objects):
            if tool.get("type") == "namespace":
                made += self._opened(tool, f"tools[{index}]")
            else:
                made.append(tool)
        if len(made) > MAX_TOOLS:
            raise UnreadableRequest(f"the request has {len(made)} tools, more than {MAX_TOOLS}")
        return made

    def flat(self, namespace: str, name: object) -> str:
        """The flat name of a call's tool, whether or not the tool was offered."""
        if not isinstance(name, str):
            raise UnreadableRequest("a function_call must have a name")
        known = self._flat.get((namespace, name))
        return known or self._add(namespace, name)

    def _opened(self, tool: Json, place: str) -> list[Json]:
        namespace = tool.get("name")
        if not isinstance(namespace, str):
            raise UnreadableRequest(f"{place} is a namespace without a name")
        made: list[Json] = []
        for index, inner in enumerate(a_list(tool.get("tools"), f"{place}.tools", MAX_TOOLS)):
            one = an_object(inner, f"{place}.tools[{index}]")
            name = one.get("name")
            if one.get("type") != "function":
                made.append({**tool, "tools": [one]})
            elif isinstance(name, str):
                made.append({**one, "name": self.flat(namespace, name)})
            else:
                raise UnreadableRequest(
                    f"{place}.tools[{index}] must have a name, not {shown(name)}"
                )
        return made

    def _add(self, namespace: str, name: str) -> str:
        between = "" if namespace.endswith(_BETWEEN) else _BETWEEN
        wanted = with_name_characters(f"{namespace}{between}{name}")
        flat = wanted = wanted[:LONGEST_TOOL_NAME]
        while flat in self._taken:  # numbered in the order of the request, which programs repeat
            count = self._counts[wanted] = self._counts.get(wanted, 1) + 1
            end = f"_{count}"
            flat = wanted[: LONGEST_TOOL_NAME - len(end)] + end
        self._taken.add(flat)
        self._flat[namespace, name] = flat
        self.names[flat] = (namespace, name)
        return flat
