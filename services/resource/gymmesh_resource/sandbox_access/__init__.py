"""Sandboxes that environments work in: what is asked for, the client, and a session's own."""

from gymmesh_resource.sandbox_access.calls import SANDBOX_SERVICE
from gymmesh_resource.sandbox_access.client import SandboxClient
from gymmesh_resource.sandbox_access.files import SandboxFiles
from gymmesh_resource.sandbox_access.handle import PortResponse, SandboxHandle
from gymmesh_resource.sandbox_access.processes import ExecResult, ProcessHandle, SandboxCommand
from gymmesh_resource.sandbox_access.services import SandboxServices
from gymmesh_resource.sandbox_access.session_sandboxes import SessionSandboxes
from gymmesh_resource.sandbox_access.spec import WORKSPACE, Reach, SandboxSpec

__all__ = [
    "SANDBOX_SERVICE",
    "WORKSPACE",
    "ExecResult",
    "PortResponse",
    "ProcessHandle",
    "Reach",
    "SandboxClient",
    "SandboxCommand",
    "SandboxFiles",
    "SandboxHandle",
    "SandboxServices",
    "SandboxSpec",
    "SessionSandboxes",
]
