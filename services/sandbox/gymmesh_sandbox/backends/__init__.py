"""What runs sandboxes: a module for each backend, behind the interface in ``base``."""

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
