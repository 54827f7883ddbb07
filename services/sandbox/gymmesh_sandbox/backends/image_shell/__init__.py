"""Files, signals and lists of processes of a sandbox, through the shell of its own image.

For backends whose only way into a sandbox is to start a program in it: `ShellSandbox` makes the
rest of that.
"""

from gymmesh_sandbox.backends.image_shell.command import CommandProgram
from gymmesh_sandbox.backends.image_shell.programs import ProgramLost, StartedProgram
from gymmesh_sandbox.backends.image_shell.sandbox import ShellSandbox

__all__ = ["CommandProgram", "ProgramLost", "ShellSandbox", "StartedProgram"]
