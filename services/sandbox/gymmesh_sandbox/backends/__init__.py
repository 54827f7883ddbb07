"""The backends that run sandboxes: a package for each, behind the interface in ``base``."""

from gymmesh_sandbox.backends.base import (
    OUT_OF_MEMORY,
    ProcessEnded,
    RunningProcess,
    RunningSandbox,
    SandboxBackend,
    SandboxSpec,
    Stream,
)
from gymmesh_sandbox.backends.find import find_backend
from gymmesh_sandbox.backends.proxy import host_pattern

__all__ = [
    "OUT_OF_MEMORY",
    "ProcessEnded",
    "RunningProcess",
    "RunningSandbox",
    "SandboxBackend",
    "SandboxSpec",
    "Stream",
    "find_backend",
    "host_pattern",
]
