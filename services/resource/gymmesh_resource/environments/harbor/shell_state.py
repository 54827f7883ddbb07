"""What the tool `shell` carries from one command to the next, and to tests, where a task of
Terminal-Bench has its tests run in the shell of the agent: the folder and the exported variables.

Each command is a shell of its own, so both are kept in files of the sandbox. Pure.
"""

from __future__ import annotations

from typing import Final

_VARIABLES: Final = "/tmp/.agent-shell"  # in the sandbox
_FOLDER: Final = f"{_VARIABLES}.folder"
#: A line of sh that takes up what the last command left.
TAKE_UP: Final = f'if [ -r {_FOLDER} ]; then . {_VARIABLES}; cd "$(cat {_FOLDER})"; fi'
_LEAVE: Final = f"export -p >{_VARIABLES}; pwd >{_FOLDER}"


def carried(command: str) -> str:
    """A command for /bin/sh that takes up the state, and leaves its own."""
    return f"{TAKE_UP}\ntrap '{_LEAVE}' EXIT\n{command}"


def typed(script: str) -> str:
    """A command that runs a script's lines as bash does that they are typed into."""
    lines = f". {script}; set -o posix; {_LEAVE}"
    return f"bash -c '{lines}'; {TAKE_UP}"
