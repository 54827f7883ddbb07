"""Running untrusted programs: one small interface, bubblewrap behind it."""

from .bubblewrap import BubblewrapSandbox
from .languages import LANGUAGES, Language, program_in
from .program import (
    Ending,
    Limits,
    Program,
    Result,
    Running,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
)
from .threads import ProgramThread
from .unsandboxed import UnsandboxedPrograms

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
