"""The kinds of mesh that a program may have; each is a `Mesh`.

embedded.py    all services in this process
remote.py      at the addresses of agent services
discovered.py  by the name of an agent, found in a registry
"""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_client.collect_stream import AgentPool
from gymmesh_mesh.config import Defaults
from gymmesh_runtime.peers import PeerDirectory


@dataclass(frozen=True, slots=True)
class Mesh:
    """An open mesh.

    ``directory`` finds and calls its services; ``agents`` finds those that run
    rollouts, over Collect where they offer it and are not in this process.
    """

    directory: PeerDirectory
    defaults: Defaults
    agents: AgentPool
