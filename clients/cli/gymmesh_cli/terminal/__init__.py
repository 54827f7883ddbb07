"""What gym-cli writes: all of it goes through here.

writing.py  text and JSON, with nothing in them for a terminal to act upon
exits.py    exit codes, and errors as one sentence
logs.py     where the log of a command goes
events.py   a rollout's events as text
"""

from gymmesh_cli.terminal.exits import plain_errors
from gymmesh_cli.terminal.writing import (
    echo,
    echo_json,
    echo_json_line,
    echo_parts,
    page_parts,
    report,
)
from gymmesh_runtime.text import one_line

__all__ = [
    "echo",
    "echo_json",
    "echo_json_line",
    "echo_parts",
    "one_line",
    "page_parts",
    "plain_errors",
    "report",
]
