"""Processes of one sandbox: what they write is kept within bounds, and how they ended."""

from gymmesh_sandbox.processes.process import Process, ProcessLimits
from gymmesh_sandbox.processes.table import ProcessTable

__all__ = ["Process", "ProcessLimits", "ProcessTable"]
