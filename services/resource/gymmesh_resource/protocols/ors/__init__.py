"""ORS, the Open Reward Standard: sessions by header, tools whose answers carry the reward, SSE.

documents.py   prompts, tools, answers (pure)
streams.py     server-sent events, and calls whose stream a client may take up again
edge.py        routes
"""

from gymmesh_resource.protocols.ors.edge import OrsEdge

__all__ = ["OrsEdge"]
