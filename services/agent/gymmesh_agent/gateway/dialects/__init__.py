"""The four APIs that programs speak: OpenAI Responses and Chat Completions, Anthropic Messages and
Gemini. Pure: bytes in, bytes out.

`route` finds the dialect of an HTTP request; `DIALECTS[route.dialect]` reads and writes it.
"""

from gymmesh_agent.gateway.dialects.base import Dialect, GatewayRoute
from gymmesh_agent.gateway.dialects.routes import DIALECTS, dialect_for, route
from gymmesh_agent.gateway.dialects.seen import SeenRequests

__all__ = ["DIALECTS", "Dialect", "GatewayRoute", "SeenRequests", "dialect_for", "route"]
