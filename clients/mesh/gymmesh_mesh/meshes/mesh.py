"""What an open mesh is to a program."""

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
