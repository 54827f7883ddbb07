"""What a program can use of an open mesh."""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_client.collect_stream import AgentPool
from gymmesh_mesh.config import Defaults
from gymmesh_runtime.peers import PeerDirectory


@dataclass(frozen=True, slots=True)
class Mesh:
    """An open mesh.

    ``directory`` finds and calls the services of the mesh. ``agents`` finds the agents that run
    rollouts; agents in other processes are called over Collect if they offer it.
    """

    directory: PeerDirectory
    defaults: Defaults
    agents: AgentPool
