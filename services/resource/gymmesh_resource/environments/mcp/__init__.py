"""The mcp environment: tools of any MCP server, by a line in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import McpEnvironment as McpEnvironment

__all__ = ["McpEnvironment"]

__getattr__ = late_class(__name__, "McpEnvironment")
