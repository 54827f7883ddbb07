"""Files, signals and lists of processes of a sandbox, through the shell of its own image.

This is for backends that can only start programs in a sandbox: `ShellSandbox` provides everything
else.
"""

from gymmesh_sandbox.backends.image_shell.command import CommandProgram
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost, StartedProgram
from gymmesh_sandbox.backends.image_shell.sandbox import ShellSandbox

__all__ = ["CommandProgram", "ProgramLost", "ShellSandbox", "StartedProgram"]
