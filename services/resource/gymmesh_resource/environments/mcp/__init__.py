"""The mcp environment: tools of any MCP server, by a line in the configuration."""

from .environment import McpEnvironment

__all__ = ["McpEnvironment"]
