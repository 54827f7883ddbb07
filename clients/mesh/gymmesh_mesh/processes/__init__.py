"""The services of a mesh as processes: started, restarted and stopped."""

from gymmesh_mesh.processes.process import ServiceInfo, StartError
from gymmesh_mesh.processes.starting import Up, run_up, up

__all__ = ["ServiceInfo", "StartError", "Up", "run_up", "up"]
