"""NeMo Gym's protocol of resources servers: sessions by cookie, a path for each tool, `/verify`.

documents.py   rows and verdicts as NeMo Gym has them (pure)
edge.py        routes
"""

from gymmesh_resource.protocols.nemo_gym.edge import NemoGymEdge

__all__ = ["NemoGymEdge"]
