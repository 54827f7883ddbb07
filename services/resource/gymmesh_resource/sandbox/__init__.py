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
from .threads import Thread
from .unsandboxed import UnsandboxedPrograms

__all__ = [
    "LANGUAGES",
    "BubblewrapSandbox",
    "Ending",
    "Language",
    "Limits",
    "Program",
    "Result",
    "Running",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Thread",
    "UnsandboxedPrograms",
    "program_in",
]
