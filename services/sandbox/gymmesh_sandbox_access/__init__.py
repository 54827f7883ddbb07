"""The client of sandbox services, for environments, agents and people: requests for sandboxes,
and the work in a sandbox. It depends on the contract and on gymmesh_runtime, not on a service's
implementation.
"""

from gymmesh_sandbox_access.calls import SANDBOX_SERVICE
from gymmesh_sandbox_access.client import SandboxClient
from gymmesh_sandbox_access.connection import SandboxUse
from gymmesh_sandbox_access.ends import SandboxEnds
from gymmesh_sandbox_access.files import SandboxFiles
from gymmesh_sandbox_access.handle import PortResponse, SandboxHandle
from gymmesh_sandbox_access.processes import ExecResult, ProcessHandle, SandboxCommand
from gymmesh_sandbox_access.services import SandboxServices, SandboxUser
from gymmesh_sandbox_access.spec import (
    AGENT_PORT,
    WORKSPACE,
    Reach,
    RolloutAgent,
    SandboxSpec,
    reaches_agent,
)

__all__ = [
    "AGENT_PORT",
    "SANDBOX_SERVICE",
    "WORKSPACE",
    "ExecResult",
    "PortResponse",
    "ProcessHandle",
    "Reach",
    "RolloutAgent",
    "SandboxClient",
    "SandboxCommand",
    "SandboxEnds",
    "SandboxFiles",
    "SandboxHandle",
    "SandboxServices",
    "SandboxSpec",
    "SandboxUse",
    "SandboxUser",
    "reaches_agent",
]
