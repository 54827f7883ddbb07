"""Runs isolated programs on this machine: namespaces, control groups, pipes, threads.

The sandbox service's backend bubblewrap uses it, and so do the environments that run programs of
single answers. Of the contract, it uses only the generated stubs.
"""

from gymmesh_sandbox_local.descriptors import Descriptors
from gymmesh_sandbox_local.first_process import first_process_for
from gymmesh_sandbox_local.groups import (
    GroupLimits,
    Groups,
    MemoryEvents,
    ProcessGroup,
    SandboxGroup,
    memory_events_of_machine,
)
from gymmesh_sandbox_local.namespaces import (
    FIRST_DESCRIPTOR,
    LaunchEnd,
    Namespaces,
    NamespacesSpec,
    bubblewrap_command,
)
from gymmesh_sandbox_local.pipes import InputPipe, OutputPipe
from gymmesh_sandbox_local.seccomp import UnknownProcessor, filter_for
from gymmesh_sandbox_local.started import ProcessStart, StartedProcess, start_process
from gymmesh_sandbox_local.starter import Child, SpawnerGone, SpawnError, Starter
from gymmesh_sandbox_local.threads import descendants_of, threads_of

__all__ = [
    "FIRST_DESCRIPTOR",
    "Child",
    "Descriptors",
    "GroupLimits",
    "Groups",
    "InputPipe",
    "LaunchEnd",
    "MemoryEvents",
    "Namespaces",
    "NamespacesSpec",
    "OutputPipe",
    "ProcessGroup",
    "ProcessStart",
    "SandboxGroup",
    "SpawnError",
    "SpawnerGone",
    "StartedProcess",
    "Starter",
    "UnknownProcessor",
    "bubblewrap_command",
    "descendants_of",
    "filter_for",
    "first_process_for",
    "memory_events_of_machine",
    "start_process",
    "threads_of",
]
