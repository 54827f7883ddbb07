"""Running programs on this machine apart from it: what backends of local processes share."""

from gymmesh_sandbox.local.descriptors import Descriptors
from gymmesh_sandbox.local.first_process import first_process_for
from gymmesh_sandbox.local.groups import GroupLimits, Groups, ProcessGroup, SandboxGroup
from gymmesh_sandbox.local.pipes import InputPipe, OutputPipe
from gymmesh_sandbox.local.seccomp import UnknownProcessor, filter_for
from gymmesh_sandbox.local.starter import Child, SpawnError, Starter
from gymmesh_sandbox.local.threads import descendants_of, threads_of

__all__ = [
    "Child",
    "Descriptors",
    "GroupLimits",
    "Groups",
    "InputPipe",
    "OutputPipe",
    "ProcessGroup",
    "SandboxGroup",
    "SpawnError",
    "Starter",
    "UnknownProcessor",
    "descendants_of",
    "filter_for",
    "first_process_for",
    "threads_of",
]
