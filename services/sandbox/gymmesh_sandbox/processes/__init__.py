"""Processes of one sandbox: what they write is kept within bounds, and how they ended."""

from gymmesh_sandbox.processes.process import ProcessLimits, SandboxProcess
from gymmesh_sandbox.processes.table import ProcessTable

__all__ = ["ProcessLimits", "ProcessTable", "SandboxProcess"]
