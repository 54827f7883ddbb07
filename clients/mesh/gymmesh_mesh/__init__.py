"""The composition root: the only room that imports services, to put them together.

``embedded``   all services in this process, directly connected;
``remote``     the agent services at given addresses;
``discovered`` the agent services of a name, found in a registry;
``up``         every service of a configuration as a process of its own.

Usable from a trainer without the command line.
"""

from gymmesh_mesh.compose import Objects
from gymmesh_mesh.config import Defaults, MeshConfig, MeshSettings
from gymmesh_mesh.discovered import SCHEMES, Target, discovered, read_target
from gymmesh_mesh.embedded import embedded
from gymmesh_mesh.mesh import Mesh
from gymmesh_mesh.processes import ServiceInfo, run_up, up
from gymmesh_mesh.remote import remote

__all__ = [
    "SCHEMES",
    "Defaults",
    "Mesh",
    "MeshConfig",
    "MeshSettings",
    "Objects",
    "ServiceInfo",
    "Target",
    "discovered",
    "embedded",
    "read_target",
    "remote",
    "run_up",
    "up",
]
