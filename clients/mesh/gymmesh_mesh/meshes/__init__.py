"""The kinds of mesh that a program may have; each is a `Mesh`.

mesh.py        what an open mesh is
embedded.py    all services in this process
remote.py      at the addresses of agent services
discovered.py  by the name of an agent, found in a registry
"""

from gymmesh_mesh.meshes.discovered import SCHEMES, Target, discovered, read_target, watched
from gymmesh_mesh.meshes.embedded import embedded
from gymmesh_mesh.meshes.mesh import Mesh
from gymmesh_mesh.meshes.remote import found_at, remote

__all__ = [
    "SCHEMES",
    "Mesh",
    "Target",
    "discovered",
    "embedded",
    "found_at",
    "read_target",
    "remote",
    "watched",
]
