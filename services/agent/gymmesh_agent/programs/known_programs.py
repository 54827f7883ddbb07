"""The known programs: one data file each, in the folder `known`.

A file has the program's installation and command, its environment variables and files, the signs of
its end, and the tested versions. `{url}`, `{key}`, `{model}`, `{prompt}`, `{workdir}` and `{home}`
are replaced by a rollout's values.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

from gymmesh_runtime.config import nearest

ProgramDialect: TypeAlias = Literal["responses", "chat", "anthropic", "gemini"]


class ProgramInstall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is installed, with exact versions.

    npm: packages, run by a Node of the version `node`. pip: packages, for the Python `python`.
    """

    npm: list[str] = []
    node: str = ""
    pip: list[str] = []
    python: str = ""

    def __post_init__(self) -> None:
        if bool(self.npm) == bool(self.pip):
            raise ValueError("install: set exactly one of the keys 'npm' and 'pip'")
        if bool(self.npm) != bool(self.node):
            raise ValueError("install.node: must be set if 'npm' is set, and only then")


class ProgramCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a program is called.

    command: the program and its arguments. env: its variables. files: files to write before it
    starts, by path. folders: folders to create before. version: the command that prints its
    version. package: in place of `version`, the Python package whose version it has.
    """

    command: list[str]
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: list[str] = []
    version: list[str] = []
    package: str = ""

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("run.command: is empty")
        if bool(self.version) == bool(self.package):
            raise ValueError("run: set exactly one of the keys 'version' and 'package'")


class ProgramTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a program gets the environment's tools over MCP: further arguments, and files that
    replace files with the same path.
    """

    arguments: list[str] = []
    files: dict[str, str] = {}


class KnownProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published program.

    about: a description in one line. dialect: the API that it calls. tried: the tested versions.
    stops: what ends it when its rollout is over. mcp: None: it can't use tools over MCP.
    """

    about: str
    dialect: ProgramDialect
    tried: list[str]
    stops: str
    install: ProgramInstall
    run: ProgramCommand
    mcp: ProgramTools | None = None


@cache
def known_programs() -> tuple[str, ...]:
    """The names of all known programs, sorted."""
    folder = resources.files(__package__) / "known"
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


@cache
def find_program(name: str) -> KnownProgram:
    """A known program by its name. Raises ValueError, which names the most similar program."""
    if name not in known_programs():
        raise ValueError(
            f"program: there is no known program {name!r}; {nearest(name, known_programs())}"
        )
    text = (resources.files(__package__) / "known" / f"{name}.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), KnownProgram)
