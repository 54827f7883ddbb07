"""What verifiers imports for the taskset id `gymmesh-taskset`: see gymmesh_trainers.verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymmesh_trainers import verifiers

if TYPE_CHECKING:
    from gymmesh_trainers.verifiers import MeshEnv as MeshEnv
    from gymmesh_trainers.verifiers import MeshTaskset as MeshTaskset

__all__ = ["MeshEnv", "MeshTaskset"]


def __getattr__(name: str) -> Any:
    # Late: this package is imported where verifiers is not, as every other one.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(verifiers, name)
