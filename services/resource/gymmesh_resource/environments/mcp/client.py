"""For other environments: a connection to an MCP server, and its tools as a model sees them."""

from __future__ import annotations

from gymmesh_resource.environments.mcp.connection import McpConnection, ServerLost
from gymmesh_resource.environments.mcp.content import answer, text
from gymmesh_resource.environments.mcp.options import ServerOptions

IS_FACE = True  # see tools/import_faces.py
__all__ = [
    "McpConnection",
    "ServerLost",
    "ServerOptions",
    "answer",
    "text",
]
