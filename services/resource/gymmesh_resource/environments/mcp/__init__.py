"""The mcp environment: tools of any MCP server, by a line in the configuration."""

from gymmesh_resource.environments.mcp.environment import McpEnvironment

__all__ = ["McpEnvironment"]
