"""The options of the agent `program`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

import msgspec

from gymmesh_agent.gateway.gateway import SideCallRule
from gymmesh_agent.programs.known_programs import find_program

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)]
_TARGET: Final = re.compile(r"^(?:[\w.]+|[^:\0]*[^:\0/]\.py):[^\W\d]\w*$")
# What every program may be given in its place: names of models that no configuration file breaks.
_MODEL: Final = re.compile(r"^[\w./:@-]{1,200}$")
_NAME: Final = re.compile(r"^[^\W\d]\w*$")
#: The value of `program` for an environment that plays the episode itself.
ENVIRONMENT: Final = "environment"
# What has a meaning for it.
_PLAYED: Final = frozenset(("program", "model", "side_calls", "timeout_s"))


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program that runs as the agent, and its limits. Exactly one of `program`, `command` and
    `function` is set.

    Attributes:
        program: a known program; or `environment` for an environment that plays the episode itself.
        command: any other program: the program and its arguments as a list, or a line for the
            shell, in which the values of placeholders are quoted.
        function: a Python function or a LangGraph graph, `package.module:name` or
            `folder/file.py:name`.
        in_process: whether the function runs in the agent's own process, without a sandbox.
        env: variables of the program; they override those of a known program.
        files: files to write before the program starts, by absolute path or below `{home}`; they
            override those of a known program.
        arguments: additional arguments of a known program, after its own.
        path: folders before the sandbox's PATH, such as those in which programs were installed
            (`binds` of the sandbox service).
        model: the model's name in the program's requests; the gateway answers any name.
        sandbox: the role of the session's sandbox in which the program runs.
        user: the program's user; empty: the sandbox's own.
        workdir: where the program starts; empty: the sandbox's own.
        mcp: whether the program gets the environment's tools over MCP, if it supports MCP.
        side_calls: rules for side calls, which are checked before the known program's rules.
        timeout_s: seconds after which the program is stopped and judged by its work so far.
        output_bytes: how much of the program's output is kept for its log.
        logs: a folder on the agent's machine for full logs, one file for each attempt; empty: none.
    """

    program: str = ""
    command: list[str] | str = ""
    function: str = ""
    in_process: bool = False
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    arguments: list[str] = []
    path: list[str] = []
    model: str = "policy"
    sandbox: str = "workspace"
    user: str = ""
    workdir: str = ""
    mcp: bool = False
    side_calls: list[SideCallRule] = []
    timeout_s: _Seconds = 1800.0
    output_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 24)] = 1 << 20
    logs: str = ""

    def __post_init__(self) -> None:
        given = [key for key in ("program", "command", "function") if getattr(self, key)]
        if len(given) != 1:
            raise ValueError(
                "program: set exactly one of the options 'program', 'command' and 'function'"
            )
        if self.is_environment:
            self._check_played()
        elif self.program:
            find_program(self.program)
        if self.function and not _TARGET.match(self.function):
            raise ValueError(
                "function: must be package.module:name or folder/file.py:name, "
                f"not {self.function!r}"
            )
        if self.in_process and not self.function:
            raise ValueError("in_process: works only with the option 'function'")
        if self.arguments and not self.program:
            raise ValueError(
                "arguments: works only with the option 'program'; add the arguments of a command "
                "to 'command'"
            )
        if not _MODEL.match(self.model):
            raise ValueError(
                f"model: {self.model!r} must have 1 to 200 characters: letters, digits or ./:@-_"
            )
        for name in self.env:
            if not _NAME.match(name):
                raise ValueError(f"env: {name!r} is not a valid name of an environment variable")
        for path in self.files:
            if not path.startswith(("/", "{home}/")) or ".." in PurePosixPath(path).parts:
                raise ValueError(f"files: {path!r} must begin with / or {{home}}/, without ..")
        for folder in self.path:
            if not folder.startswith("/") or ":" in folder:
                raise ValueError(f"path: {folder!r} must be an absolute path without a colon")

    def _check_played(self) -> None:
        for field in msgspec.structs.fields(self):
            made = field.default_factory
            usual = field.default if made is msgspec.NODEFAULT else made()
            if field.name not in _PLAYED and getattr(self, field.name) != usual:
                raise ValueError(
                    f"{field.name}: does not work with the option 'program: {ENVIRONMENT}'"
                )

    @property
    def is_environment(self) -> bool:
        """Whether the environment plays the episode itself."""
        return self.program == ENVIRONMENT

    @property
    def name(self) -> str:
        """The program's name in rollouts: a known program's name, or the name of the command or
        function.
        """
        if self.program or self.function:
            return self.program or self.function
        words = self.command.split() if isinstance(self.command, str) else self.command
        return PurePosixPath(words[0]).name


def read_options(options: Mapping[str, Any]) -> ProgramOptions:
    """The options of a configuration. Raises ValueError, `KEY: problem`."""
    try:
        return msgspec.convert(dict(options), ProgramOptions)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        place = place.strip(".`")
        within = f"{place}." if place else ""
        if isinstance(error.__cause__, ValueError):
            raise ValueError(f"{within}{error.__cause__}") from None
        if unknown := re.search(r"unknown field `(.*)`", problem):
            what = "a key of a side call" if place else "an option of the agent 'program'"
            raise ValueError(f"{within}{unknown[1]}: is not {what}") from None
        raise ValueError(f"{place}: {problem}") from None
