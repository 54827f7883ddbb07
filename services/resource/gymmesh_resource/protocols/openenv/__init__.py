"""OpenEnv's protocol: WebSocket sessions with reset, step, state and MCP, and its HTTP routes.

episode.py     a client's session: its episodes, one after another
documents.py   what is sent: observations, schemas, errors (pure)
json_rpc.py    the methods of `/mcp`
edge.py        routes and sockets
"""

from gymmesh_resource.protocols.openenv.edge import OpenEnvEdge

__all__ = ["OpenEnvEdge"]
