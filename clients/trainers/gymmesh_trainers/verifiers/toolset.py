"""The tool server that a harness of verifiers reaches over MCP; verifiers runs it as a module.

It has a session's tools and calls them through `tool_calls`: which session's, the state says, which
verifiers carries from an episode's task to here.
"""

from __future__ import annotations

from typing import Any, cast

import httpx
import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool
from pydantic import Field


class MeshState(vf.State):  # type: ignore[misc]  # verifiers ships no types here
    """Where an episode's session is called, and what it offers."""

    url: str = ""
    token: str = ""
    tools: list[dict[str, Any]] = Field(default_factory=list)


class MeshToolset(vf.Toolset[vf.SharedToolsetConfig, MeshState]):  # type: ignore[misc]  # as above
    """The tools of the environment, under their own names."""

    TOOL_PREFIX = None

    def register(self, mcp: Any) -> None:
        """Answer for the session that the state names: its tools differ from task to task."""
        mcp.list_tools = self._with_state(self.list_tools)
        mcp.call_tool = self._with_state(self.call_tool)

    async def list_tools(self) -> list[Tool]:
        """The session's tools."""
        return [
            Tool(
                name=tool["name"],
                description=tool["description"] or None,
                input_schema=tool["parameters"] or {"type": "object"},
            )
            for tool in self._session.tools
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None
    ) -> CallToolResult:
        """Call one of them."""
        session = self._session
        async with httpx.AsyncClient(timeout=None) as client:
            answer = await client.post(
                f"{session.url}/call",
                headers={"Authorization": f"Bearer {session.token}"},
                json={"name": name, "arguments": arguments or {}},
            )
        if answer.is_error:
            return _result(answer.text, is_error=True)
        said = answer.json()
        return _result(said["text"], is_error=said["is_error"])

    @property
    def _session(self) -> MeshState:
        return cast("MeshState", self.state)


def _result(text: str, *, is_error: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


if __name__ == "__main__":
    MeshToolset.run()
