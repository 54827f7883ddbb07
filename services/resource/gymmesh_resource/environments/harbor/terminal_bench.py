"""Reads a task folder of Terminal-Bench 1: `task.yaml` and `docker-compose.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml

from gymmesh_resource.environments.harbor.rewards import PARSERS
from gymmesh_resource.environments.harbor.task import (
    HarborTask,
    TaskBox,
    TaskFiles,
    TaskRefused,
    TaskStep,
    TaskTests,
    inside,
    read_text,
)

FILE: Final = "task.yaml"
_COMPOSE: Final = "docker-compose.yaml"
_SCRIPT: Final = "run-tests.sh"
_TYPED: Final = "solution.yaml"
# What an image is never built from, since an agent would find it there.
_HIDDEN: Final = ("tests", "solution.sh", _TYPED, _SCRIPT, FILE, _COMPOSE)
# Keys of a service that say nothing that a program in its container could see.
_NAMING: Final = {"container_name", "image", "command", "tty", "stdin_open", "ports"}
_LOGS: Final = re.compile(r"\$\{T_BENCH_[A-Z_]*LOGS_PATH\}:\$\{T_BENCH_[A-Z_]*LOGS_PATH\}")
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]


class _TaskYaml(msgspec.Struct, frozen=True):
    instruction: str
    parser_name: str = "pytest"
    max_agent_timeout_sec: _Seconds = 360.0
    max_test_timeout_sec: _Seconds = 60.0
    run_tests_in_same_shell: bool = False


class _TypedCommand(msgspec.Struct, frozen=True):
    """A line that the solution types at the terminal."""

    command: str
    append_enter: bool = True


def read_terminal_bench(folder: Path) -> HarborTask:
    """Reads a folder. Raises TaskRefused."""
    said = _converted(_loaded(folder, FILE))
    parser = next((name for name in PARSERS if name == said.parser_name), None)
    if parser is None:
        raise TaskRefused(
            f"{FILE} parser_name", f"is {said.parser_name!r}; use one of {', '.join(PARSERS)}"
        )
    if not inside(folder, _SCRIPT).is_file():
        raise TaskRefused(_SCRIPT, "is missing")
    service = _service(folder)
    script, typed = _solution(folder)
    build = inside(folder, _context(service))
    if not (build / "Dockerfile").is_file():
        raise TaskRefused("Dockerfile", "is missing")
    return HarborTask(
        box=TaskBox(
            build=build,
            without_top=_HIDDEN if build.resolve() == folder.resolve() else (),
            env={"TEST_DIR": "/tests", **_variables(service)},
            workdir=str(service.get("working_dir", "")),
        ),
        steps=[
            TaskStep(
                instruction=said.instruction,
                agent_s=said.max_agent_timeout_sec,
                tests=TaskTests(
                    folders=(TaskFiles(tests),)
                    if (tests := inside(folder, "tests")).is_dir()
                    else (),
                    extra=(folder / _SCRIPT,),
                    script=_SCRIPT,
                    printed=parser,
                    same_shell=said.run_tests_in_same_shell,
                    time_s=said.max_test_timeout_sec,
                ),
                solution=script,
                solution_text=typed,
            )
        ],
    )


def _solution(folder: Path) -> tuple[Path | None, str]:
    """The script that solves the task, and its content where `solution.yaml` has the commands.

    Commands that are keys of a program on the terminal make no script: such a task has none.
    """
    script = inside(folder, "solution.sh")
    if script.is_file() or not inside(folder, _TYPED).is_file():
        return script if script.is_file() else None, ""
    try:
        commands = msgspec.convert(_loaded(folder, _TYPED), list[_TypedCommand])
    except msgspec.ValidationError as error:
        raise TaskRefused(_TYPED, str(error)) from None
    if not all(one.append_enter for one in commands):
        return None, ""
    return script, "".join(f"{one.command}\n" for one in commands)


def _loaded(folder: Path, name: str) -> Any:
    try:
        return yaml.safe_load(read_text(folder, name))
    except yaml.YAMLError as error:
        raise TaskRefused(name, f"is not YAML: {' '.join(str(error).split())[:200]}") from None


def _converted(document: Any) -> _TaskYaml:
    try:
        return msgspec.convert(document, _TaskYaml)
    except msgspec.ValidationError as error:
        raise TaskRefused(FILE, str(error)) from None


def _service(folder: Path) -> Mapping[str, Any]:
    """The one service of the compose file. Raises TaskRefused for what needs more than one."""
    document = _loaded(folder, _COMPOSE)
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or len(services) != 1:
        raise TaskRefused(f"{_COMPOSE} services", "must have exactly one service")
    for key in document:
        if key not in ("services", "version"):
            raise TaskRefused(f"{_COMPOSE} {key}", "is not supported")
    ((name, service),) = services.items()
    if not isinstance(service, dict):
        raise TaskRefused(f"{_COMPOSE} services.{name}", "must be a map")
    for key, value in service.items():
        of_logs = key == "volumes" and all(
            isinstance(one, str) and _LOGS.fullmatch(one) for one in value or ()
        )
        if key not in _NAMING | {"build", "environment", "working_dir"} and not of_logs:
            raise TaskRefused(f"{_COMPOSE} services.{name}.{key}", "is not supported")
    return service


def _context(service: Mapping[str, Any]) -> str:
    build = service.get("build", ".")
    if isinstance(build, str):
        return build
    if not isinstance(build, dict) or set(build) - {"context", "dockerfile"}:
        raise TaskRefused(f"{_COMPOSE} build", "may have only the keys 'context' and 'dockerfile'")
    if build.get("dockerfile", "Dockerfile") not in ("Dockerfile", "./Dockerfile"):
        raise TaskRefused(f"{_COMPOSE} build.dockerfile", "must be Dockerfile")
    return str(build.get("context", "."))


def _variables(service: Mapping[str, Any]) -> dict[str, str]:
    given = service.get("environment") or {}
    if isinstance(given, list):
        given = dict(str(one).partition("=")[::2] for one in given)
    if not isinstance(given, dict):
        raise TaskRefused(f"{_COMPOSE} environment", "must be a list or a map")
    return {str(name): str(value) for name, value in given.items() if name != "TEST_DIR"}
