"""The four APIs that programs speak: OpenAI Responses and Chat Completions, Anthropic Messages and
Gemini. Pure: bytes in, bytes out.
"""

from gymmesh_agent.gateway.dialects.base import Dialect, Route

__all__ = ["Dialect", "Route"]
