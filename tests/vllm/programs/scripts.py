"""What the model says to each program: ten steps with the shell, a sub-agent, a compaction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.vllm.programs.recording import AskedCall

MAIN: Final = "MAIN-TASK"
SUB: Final = "SUB-TASK"
SUB_PROMPT: Final = f"{SUB}: write the file sub.txt, as you are told."
SUMMARY: Final = f"{MAIN}: lines are appended to log.txt one by one; the next ones are to follow."
STEPS: Final = 10
DONE: Final = "It is done."
SUBMIT: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_SHELLS: Final = ("bash", "Bash", "shell", "shell_command", "exec_command")
_AGENTS: Final = ("spawn_agent", "Task", "Agent")
_AGENT_ID: Final = re.compile(r'"agent_id":\s*"([^"]+)"')
_WAITS: Final = ("wait_agent",)
# Parts of what programs ask for a summary with.
_COMPACTIONS: Final = ("CONTEXT CHECKPOINT COMPACTION", "create a detailed summary of")
_USUAL: Final[Mapping[str, Any]] = {
    "string": "as asked",
    "boolean": False,
    "integer": 1,
    "number": 1,
}

Step = Callable[[AskedCall], str]


def shell(command: str) -> Step:
    """Runs a command."""

    def said(asked: AskedCall) -> str:
        name = next(one for one in _SHELLS if one in asked.tools)
        return call(asked, name, {"command": command, "cmd": command})

    return said


def appended(number: int) -> Step:
    """Appends a line to log.txt."""
    return shell(f"echo line {number} >>log.txt")


def told_at_length(number: int) -> Step:
    """As `appended`, and prints some 15,000 tokens: enough that programs compact."""
    return shell(f"echo line {number} >>log.txt; seq 1 3000")


def sub_agent(asked: AskedCall) -> str:
    """Starts a sub-agent."""
    name = tool_of(asked, _AGENTS)
    given = {"prompt": SUB_PROMPT, "message": SUB_PROMPT, "run_in_background": False}
    return call(asked, name, given)


def wait(asked: AskedCall) -> str:
    """Waits for the sub-agent, which the last message names."""
    found = _AGENT_ID.search(asked.last)
    agents = [found[1]] if found else []
    return call(asked, tool_of(asked, _WAITS), {"targets": agents, "timeout_ms": 600_000})


def tool_of(asked: AskedCall, names: Sequence[str]) -> str:
    """The tool of one of these names, in whatever namespace it is."""
    return next(tool for name in names for tool in asked.tools if tool.split("__")[-1] == name)


def call(asked: AskedCall, name: str, given: Mapping[str, Any]) -> str:
    """A tool call, spelled as no parser or template writes it."""
    schema = asked.tools[name]
    known: Mapping[str, Any] = schema.get("properties") or {}
    arguments = {key: value for key, value in given.items() if key in known}
    for key in schema.get("required") or ():
        kinds = known[key].get("enum") or [_USUAL.get(known[key].get("type"), "as asked")]
        arguments.setdefault(key, kinds[0])
    written = json.dumps(arguments, indent=1, separators=(" ,", ":   "))
    return f'Next.\n<tool_call>\n{{"name":  "{name}", "arguments": {written}}}\n</tool_call>'


class ProgramScript:
    """The steps of the main conversation one after the other, and what is said beside it.

    Attributes:
        kinds: what each call was for: main, sub, compaction or beside.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.kinds: list[str] = []
        self._steps = [*steps]
        self._sub = [shell("echo sub >sub.txt")]

    def __call__(self, asked: AskedCall) -> str:
        kind, said = self._answer(asked)
        self.kinds.append(kind)
        return said

    def _answer(self, asked: AskedCall) -> tuple[str, str]:
        if any(words in asked.last for words in _COMPACTIONS):
            return "compaction", f"<analysis>Lines.</analysis>\n<summary>\n{SUMMARY}\n</summary>"
        if not asked.tools:
            return "beside", "Lines in a file"
        steps = self._steps if MAIN in asked.text else self._sub
        kind = "main" if MAIN in asked.text else "sub"
        return kind, steps.pop(0)(asked) if steps else DONE
