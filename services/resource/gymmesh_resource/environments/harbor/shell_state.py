"""The folder and exported variables that the tool `shell` keeps between commands and for the tests,
in tasks of Terminal-Bench whose tests run in the agent's shell.

Each command runs in a new shell, so files of the sandbox keep both. Pure.
"""

from __future__ import annotations

from typing import Final

_VARIABLES: Final = "/tmp/.agent-shell"  # in the sandbox
_FOLDER: Final = f"{_VARIABLES}.folder"
#: A line of sh that takes up what the last command left.
TAKE_UP: Final = f'if [ -r {_FOLDER} ]; then . {_VARIABLES}; cd "$(cat {_FOLDER})"; fi'
_LEAVE: Final = f"export -p >{_VARIABLES}; pwd >{_FOLDER}"


def carried(command: str) -> str:
    """A command for /bin/sh that restores the state, and saves it at the end."""
    return f"{TAKE_UP}\ntrap '{_LEAVE}' EXIT\n{command}"


def typed(script: str) -> str:
    """A command that runs a script's lines as bash does that they are typed into."""
    lines = f". {script}; set -o posix; {_LEAVE}"
    return f"bash -c '{lines}'; {TAKE_UP}"
