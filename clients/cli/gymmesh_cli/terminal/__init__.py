"""What gym-cli writes: all of it goes through here.

writing.py  text and JSON, with nothing in them for a terminal to act upon
exits.py    exit codes, and errors as one sentence
logs.py     where the log of a command goes
events.py   a rollout's events as text
help.py     help of commands whose options are in groups
"""

from gymmesh_cli.terminal.exits import (
    DONE,
    INTERRUPTED,
    NOTHING_DONE,
    WITH_FAILURES,
    plain_errors,
    say,
)
from gymmesh_cli.terminal.help import GroupedCommand, GroupedOption, OptionGroup, option
from gymmesh_cli.terminal.logs import log_format_option, logged, logged_as_service, logged_to
from gymmesh_cli.terminal.writing import (
    ProgramOutput,
    echo,
    echo_json,
    echo_json_line,
    echo_parts,
    page_parts,
    report,
)
from gymmesh_runtime.text import one_line

__all__ = [
    "DONE",
    "INTERRUPTED",
    "NOTHING_DONE",
    "WITH_FAILURES",
    "GroupedCommand",
    "GroupedOption",
    "OptionGroup",
    "ProgramOutput",
    "echo",
    "echo_json",
    "echo_json_line",
    "echo_parts",
    "log_format_option",
    "logged",
    "logged_as_service",
    "logged_to",
    "one_line",
    "option",
    "page_parts",
    "plain_errors",
    "report",
    "say",
]
