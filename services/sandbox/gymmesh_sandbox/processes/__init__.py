"""The processes of one sandbox: their output, within limits, and how they ended."""

from gymmesh_sandbox.processes.process import ProcessLimits, SandboxProcess
from gymmesh_sandbox.processes.table import ProcessTable

__all__ = ["ProcessLimits", "ProcessTable", "SandboxProcess"]
