"""The gateway: a model endpoint for programs that run as the agent, which captures their calls.

A dialect reads a program's request (dialects/, pure). The tree decides where the request belongs
among the rollout's calls (tree/, pure). The model service answers it.

server    the HTTP edge; replies writes an answer, connections limits the connections
session   one rollout's calls
gateway   what an agent gives to a program: an address and a key
"""

from gymmesh_agent.gateway.config import GatewayConfig

__all__ = ["GatewayConfig"]
