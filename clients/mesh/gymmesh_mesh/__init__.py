"""The composition root: the only room that imports services, to put them together.

``embedded``   all services in this process, directly connected;
``remote``     the agent services at given addresses;
``discovered`` the agent services of a name, found in a registry;
``up``         every service of a configuration as a process of its own.

Usable from a trainer without the command line.

config.py                the configuration; compose.py makes services of it
layout.py                which services share a process (pure)
meshes/                  the first three; verifying.py finds environments alone
processes/               the last; worker.py is one such process
model_checks.py          fetches and tries models
connecting.py            a client of one environment that is served somewhere
service_descriptions.py  what the services of a mesh say of themselves
uses.py                  the environment of a place, in a configuration's words
authoring/               trials and checks for authors of environments
"""

from gymmesh_mesh.compose import Objects
from gymmesh_mesh.config import Defaults, MeshConfig, MeshSettings
from gymmesh_mesh.connecting import EnvironmentClient, EnvironmentSession, connect
from gymmesh_mesh.meshes import SCHEMES, Mesh, Target, discovered, embedded, read_target, remote
from gymmesh_mesh.processes import ServiceInfo, run_up, up

__all__ = [
    "SCHEMES",
    "Defaults",
    "EnvironmentClient",
    "EnvironmentSession",
    "Mesh",
    "MeshConfig",
    "MeshSettings",
    "Objects",
    "ServiceInfo",
    "Target",
    "connect",
    "discovered",
    "embedded",
    "read_target",
    "remote",
    "run_up",
    "up",
]
