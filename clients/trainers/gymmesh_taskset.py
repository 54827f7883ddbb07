"""What verifiers imports for the taskset id `gymmesh-taskset`: see gymmesh_trainers.verifiers."""

from gymmesh_trainers.verifiers import MeshEnv, MeshTaskset

__all__ = ["MeshEnv", "MeshTaskset"]
