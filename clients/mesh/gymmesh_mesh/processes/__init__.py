"""The services of a mesh as processes: started, restarted and stopped."""

from gymmesh_mesh.processes.consul_agent import consul_problem
from gymmesh_mesh.processes.process import ServiceInfo, StartError
from gymmesh_mesh.processes.serve_one import ServingPlace, serve_one
from gymmesh_mesh.processes.starting import Up, run_up, up

__all__ = [
    "ServiceInfo",
    "ServingPlace",
    "StartError",
    "Up",
    "consul_problem",
    "run_up",
    "serve_one",
    "up",
]
