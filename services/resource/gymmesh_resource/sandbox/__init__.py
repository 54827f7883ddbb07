"""Running untrusted programs: one small interface, bubblewrap behind it."""

from gymmesh_resource.sandbox.bubblewrap import BubblewrapSandbox
from gymmesh_resource.sandbox.languages import LANGUAGES, Language, program_in
from gymmesh_resource.sandbox.program import (
    Ending,
    Limits,
    Program,
    ProgramThread,
    Result,
    Running,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
)
from gymmesh_resource.sandbox.unsandboxed import UnsandboxedPrograms

__all__ = [
    "LANGUAGES",
    "BubblewrapSandbox",
    "Ending",
    "Language",
    "Limits",
    "Program",
    "ProgramThread",
    "Result",
    "Running",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "UnsandboxedPrograms",
    "program_in",
]
