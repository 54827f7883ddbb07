"""The gateway: a model endpoint for programs that run as the agent, which captures their calls.

A program's request is read by its dialect (dialects/, pure), placed in the rollout's tree of calls
(tree/, pure) and answered by the model service.

server    the HTTP edge; replies writes an answer, connections bounds them
session   one rollout's calls
gateway   what an agent hands to a program: an address and a key
"""

from gymmesh_agent.gateway.config import GatewayConfig

__all__ = ["GatewayConfig"]
