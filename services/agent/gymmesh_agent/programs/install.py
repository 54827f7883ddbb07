"""Installs known programs into a folder, from which sandboxes run them.

    python -m gymmesh_agent.programs.install codex mini-swe-agent --folder /opt/programs

Each program gets a folder of its own, `FOLDER/NAME`. Add `FOLDER/NAME/bin` to the option `path` of
the agent. The folder has everything that the program needs except the system's libraries. A Python
program also needs its interpreter's folder in the sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gymmesh_agent.programs.known_programs import (
    KnownProgram,
    ProgramInstall,
    find_program,
    known_programs,
)

_INSTALL_S: Final = 1800.0


class InstallError(Exception):
    """A program could not be installed as requested."""


def install_program(name: str, folder: Path, python: str = "") -> Path:
    """Installs a known program and returns the folder with its commands. Keeps an existing
    installation with the requested versions.

    python: the interpreter of Python programs; empty: the interpreter on the PATH with the version
    in the program's file, or the current interpreter if there is none.
    Raises InstallError with the output of npm or pip.
    """
    program = find_program(name)
    place = folder / name
    commands = place / "bin"
    try:
        _check(program, place)
        return commands
    except InstallError:
        shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if program.install.npm:
        _npm(program.install, place)
    else:
        _pip(program.install, place, python)
    _check(program, place)
    return commands


def _npm(install: ProgramInstall, place: Path) -> None:
    packages = [*install.npm, f"node@{install.node}"]
    _run(["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", *packages])
    (place / "bin").symlink_to("node_modules/.bin")


def _pip(install: ProgramInstall, place: Path, python: str) -> None:
    found = python or shutil.which(f"python{install.python}") or sys.executable
    version = _output([found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    if install.python and version != install.python:
        raise InstallError(f"{found} is Python {version}, but Python {install.python} is required")
    _run([found, "-m", "venv", str(place)])
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    _run([*pip, "--disable-pip-version-check", *install.pip])


def _check(program: KnownProgram, place: Path) -> None:
    """Raises InstallError unless the requested versions are installed: npm silently installs
    older versions if its node is too old.
    """
    for package in program.install.npm:
        name, _, wanted = package.rpartition("@")
        _is(name, wanted, _npm_version(place / "node_modules" / name))
    for package in program.install.pip:
        name, _, wanted = package.partition("==")
        if wanted:
            _is(name, wanted, _pip_version(place, name))
    if program.install.node:
        node = _output([str(place / "bin" / "node"), "--version"]).removeprefix("v")
        _is("node", program.install.node, node.partition(".")[0])
    if not os.access(place / "bin" / program.run.command[0], os.X_OK):
        raise InstallError(f"the packages have no executable {place}/bin/{program.run.command[0]}")


def _is(name: str, wanted: str, found: str) -> None:
    if found != wanted:
        raise InstallError(
            f"{name} is {found or 'not installed'}, but version {wanted} was requested"
        )


def _npm_version(package: Path) -> str:
    try:
        return str(json.loads((package / "package.json").read_bytes())["version"])
    except (OSError, ValueError, KeyError):
        return ""


def _pip_version(place: Path, name: str) -> str:
    python = place / "bin" / "python"
    script = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return _output([str(python), "-c", script, name])


def _output(words: Sequence[str]) -> str:
    """What a command prints; empty if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=60, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _run(words: Sequence[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, timeout=_INSTALL_S, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{words[0]}: {error}") from None
    if done.returncode:
        raise InstallError(f"{' '.join(words[:3])} failed: {done.stderr.strip()[-1500:]}")


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--folder", type=click.Path(path_type=Path), required=True, help="The folder to install into."
)
@click.option("--python", default="", help="The Python interpreter for programs that pip installs.")
def main(names: Sequence[str], folder: Path, python: str) -> None:
    """Install known programs into a folder. NAMES: the names of the programs, or `all`."""
    for name in known_programs() if "all" in names else names:
        try:
            click.echo(f"{name}: {install_program(name, folder.resolve(), python)}")
        except (InstallError, ValueError) as error:
            raise click.ClickException(f"{name}: {error}") from None


if __name__ == "__main__":
    main()
