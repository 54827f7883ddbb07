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
dialing_out.py           a model of this process, offered at a relay of a mesh
service_descriptions.py  what the services of a mesh say of themselves
uses.py                  the environment of a place, in a configuration's words
authoring/               trials and checks for authors of environments
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymmesh_mesh.compose import Objects as Objects
    from gymmesh_mesh.config import Defaults as Defaults
    from gymmesh_mesh.config import MeshConfig as MeshConfig
    from gymmesh_mesh.config import MeshSettings as MeshSettings
    from gymmesh_mesh.connecting import EnvironmentClient as EnvironmentClient
    from gymmesh_mesh.connecting import EnvironmentSession as EnvironmentSession
    from gymmesh_mesh.connecting import connect as connect
    from gymmesh_mesh.dialing_out import DialedOut as DialedOut
    from gymmesh_mesh.dialing_out import dial_out as dial_out
    from gymmesh_mesh.meshes import SCHEMES as SCHEMES
    from gymmesh_mesh.meshes import Mesh as Mesh
    from gymmesh_mesh.meshes import Target as Target
    from gymmesh_mesh.meshes import discovered as discovered
    from gymmesh_mesh.meshes import embedded as embedded
    from gymmesh_mesh.meshes import read_target as read_target
    from gymmesh_mesh.meshes import remote as remote
    from gymmesh_mesh.processes import ServiceInfo as ServiceInfo
    from gymmesh_mesh.processes import run_up as run_up
    from gymmesh_mesh.processes import up as up

_HOME = {
    "SCHEMES": "meshes",
    "Defaults": "config",
    "DialedOut": "dialing_out",
    "EnvironmentClient": "connecting",
    "EnvironmentSession": "connecting",
    "Mesh": "meshes",
    "MeshConfig": "config",
    "MeshSettings": "config",
    "Objects": "compose",
    "ServiceInfo": "processes",
    "Target": "meshes",
    "connect": "connecting",
    "dial_out": "dialing_out",
    "discovered": "meshes",
    "embedded": "meshes",
    "read_target": "meshes",
    "remote": "meshes",
    "run_up": "processes",
    "up": "processes",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: the process of one service needs no client and no other mesh.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
