"""Reads a task folder of Harbor: `task.toml` of the versions 1.0 to 1.4, with or without steps.

Keys that these versions do not define are ignored, as in Harbor. Keys that they define, but that
gymmesh does not support, are rejected by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from gymmesh_resource.environments.harbor.ignore_rules import FILE as IGNORE_FILE
from gymmesh_resource.environments.harbor.ignore_rules import files_of
from gymmesh_resource.environments.harbor.task import (
    Artifact,
    HarborTask,
    Healthcheck,
    HookCommand,
    Strategy,
    TaskBox,
    TaskFiles,
    TaskRefused,
    TaskServer,
    TaskStep,
    TaskTests,
    inside,
    read_text,
    refuse_there,
)
from gymmesh_resource.environments.harbor.toml_boxes import agents_box, tests_box
from gymmesh_resource.environments.harbor.toml_schema import (
    FILE,
    ArtifactTable,
    CollectTable,
    HealthcheckTable,
    McpServerTable,
    StepTable,
    TaskToml,
    User,
    parsed,
    place,
)
from gymmesh_runtime.extras import Extra

#: The folder that tests in a sandbox of their own get in every task.
ARTIFACTS: Final = "/logs/artifacts"
_CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_STEP_NAME: Final = re.compile(r"[^<>:\"/\\|?*\x00-\x1f\x7f]{1,255}")
_SCRIPT: Final = "test.sh"
_TESTS_S: Final = 600.0
_MCP: Final = Extra("mcp", ("mcp",))
_STRATEGIES: Final[Mapping[str, Strategy]] = {"mean": "mean", "final": "final"}


def read_harbor(folder: Path) -> HarborTask:
    """Reads a folder. Raises TaskRefused."""
    said = parsed(read_text(folder, FILE))
    refuse_there(folder, "trajectory.json")
    box = agents_box(folder, said)
    steps = _steps(folder, said, box)
    strategy = said.multi_step_reward_strategy or "mean"
    if strategy not in _STRATEGIES:
        raise TaskRefused(
            place("multi_step_reward_strategy"), f"is {strategy!r}; use {' or '.join(_STRATEGIES)}"
        )
    return HarborTask(
        box=box,
        agent_user=_agents_user(said),
        healthcheck=_healthcheck(said.environment.healthcheck),
        steps=steps,
        strategy=_STRATEGIES[strategy],
        solution_env=said.solution.env,
        skills=said.environment.skills_dir or "",
        servers=_servers(said.environment.mcp_servers),
    )


def _servers(tables: Sequence[McpServerTable]) -> tuple[TaskServer, ...]:
    """Raises TaskRefused for a server that no program in the sandbox is."""
    found: dict[str, TaskServer] = {}
    key = place("environment.mcp_servers")
    if tables and (problem := _MCP.problem("this task")):
        raise TaskRefused(key, problem)
    for one in tables:
        if one.transport != "stdio":
            raise TaskRefused(
                key,
                f"has {one.name!r} with the transport {one.transport!r}; only the transport "
                "'stdio' is supported, because no service runs beside the sandbox",
            )
        if not one.command:
            raise TaskRefused(key, f"has {one.name!r} without a command")
        if one.name in found:
            raise TaskRefused(key, f"has {one.name!r} twice")
        found[one.name] = TaskServer(one.name, (one.command, *one.args))
    return tuple(found.values())


def _steps(folder: Path, said: TaskToml, box: TaskBox) -> list[TaskStep]:
    if not said.steps:
        return [_only_step(folder, said, box)]
    names: set[str] = set()
    for step in said.steps:
        bare = step.name.rstrip(". ")
        if not _STEP_NAME.fullmatch(step.name) or not bare or bare != step.name:
            raise TaskRefused(
                place("steps"),
                f"has a step named {step.name!r}, but a step's name must be usable as a folder's "
                "name",
            )
        if step.name.casefold() in names:
            raise TaskRefused(place("steps"), f"has {step.name!r} twice")
        names.add(step.name.casefold())
    return [_step(folder, said, step, box) for step in said.steps]


def _only_step(folder: Path, said: TaskToml, box: TaskBox) -> TaskStep:
    """What a task without steps is: a single one without a name."""
    verifier = said.verifier
    own_box, has_tests = tests_box(folder, said, None, box)
    tests = () if has_tests else (_only_tests(folder),)
    script, around = _solution(folder, "solution")
    return TaskStep(
        instruction=_without_canary(read_text(folder, "instruction.md")),
        agent_s=said.agent.timeout_sec or 0.0,
        tests=TaskTests(
            folders=tests,
            script=_SCRIPT,
            time_s=verifier.timeout_sec or _TESTS_S,
            env=verifier.env,
            user=_user(verifier.user),
            box=own_box,
        ),
        artifacts=_artifacts(said.artifacts, "artifacts"),
        collect=_collected(verifier.collect, "verifier.collect"),
        solution=script,
        solution_folder=around,
    )


def _step(folder: Path, said: TaskToml, step: StepTable, box: TaskBox) -> TaskStep:
    """One of several steps. What it does not say itself, the task says."""
    own, table = f"steps/{step.name}", f"steps.{step.name}"
    refuse_there(folder, f"{own}/trajectory.json")
    verifier = step.verifier
    own_box, has_tests = tests_box(folder, said, step, box)
    folders = () if has_tests else _step_tests(folder, own)
    of_step = inside(folder, f"{own}/solution").is_dir()
    script, around = _solution(folder, f"{own}/solution" if of_step else "solution")
    files = inside(folder, f"{own}/workdir")
    least = step.min_reward
    return TaskStep(
        name=step.name,
        instruction=_without_canary(read_text(folder, f"{own}/instruction.md")),
        agent_s=step.agent.timeout_sec or said.agent.timeout_sec or 0.0,
        files=files if files.is_dir() else None,
        has_setup=(files / "setup.sh").is_file(),
        healthcheck=_healthcheck(step.healthcheck),
        tests=TaskTests(
            folders=folders,
            script=_SCRIPT,
            # The task's own time is no default of its steps' in Harbor.
            time_s=verifier.timeout_sec or _TESTS_S,
            env={**said.verifier.env, **verifier.env},
            user=_user(said.verifier.user if verifier.user is None else verifier.user),
            box=own_box,
        ),
        artifacts=_artifacts([*said.artifacts, *step.artifacts], f"{table}.artifacts"),
        collect=_collected([*said.verifier.collect, *verifier.collect], f"{table}.verifier"),
        least={"reward": least} if isinstance(least, int | float) else least or {},
        solution=script,
        solution_folder=around,
    )


def _step_tests(folder: Path, own: str) -> tuple[TaskFiles, ...]:
    """The task's tests, and over them the step's. Raises TaskRefused."""
    parts = [part for part in ("tests", f"{own}/tests") if inside(folder, part).is_dir()]
    script = next((one for one in reversed(parts) if (folder / one / _SCRIPT).is_file()), None)
    if script is None:
        raise TaskRefused(f"{own}/tests/{_SCRIPT}", "is missing")
    found = {part: files_of(folder, part) for part in parts}
    _check_included(found[script], script, _SCRIPT)
    return tuple(found.values())


def _only_tests(folder: Path) -> TaskFiles:
    if not inside(folder, f"tests/{_SCRIPT}").is_file():
        raise TaskRefused(f"tests/{_SCRIPT}", "is missing")
    files = files_of(folder, "tests")
    _check_included(files, "tests", _SCRIPT)
    return files


def _solution(folder: Path, part: str) -> tuple[Path | None, TaskFiles | None]:
    if not inside(folder, f"{part}/solve.sh").is_file():
        return None, None
    files = files_of(folder, part)
    _check_included(files, part, "solve.sh")
    return folder / part / "solve.sh", files


def _check_included(files: TaskFiles, part: str, script: str) -> None:
    if script in files.without:
        raise TaskRefused(f"{part}/{script}", f"is excluded by {IGNORE_FILE}")


def _artifacts(entries: Sequence[str | ArtifactTable], table: str) -> tuple[Artifact, ...]:
    found: dict[str, Artifact] = {}
    for entry in entries:
        one = ArtifactTable(entry) if isinstance(entry, str) else entry
        path = PurePosixPath(one.source)
        if one.service not in (None, "main"):
            raise TaskRefused(
                place(table),
                f"names the service {one.service!r}; only the service main is supported",
            )
        if not path.is_absolute() or ".." in path.parts:
            raise TaskRefused(place(table), f"has {one.source!r}, which is not an absolute path")
        found[str(path)] = Artifact(str(path), tuple(one.exclude))
    first = {} if ARTIFACTS in found else {ARTIFACTS: Artifact(ARTIFACTS)}
    return tuple((first | found).values())


def _collected(entries: Sequence[CollectTable], table: str) -> tuple[HookCommand, ...]:
    for one in entries:
        if one.service != "main":
            raise TaskRefused(
                place(table),
                f"names the service {one.service!r}; only the service main is supported",
            )
    return tuple(HookCommand(one.command, one.timeout_sec, _user(one.user)) for one in entries)


def _healthcheck(table: HealthcheckTable | None) -> Healthcheck | None:
    if table is None:
        return None
    return Healthcheck(
        command=table.command,
        interval_s=table.interval_sec,
        timeout_s=table.timeout_sec,
        start_period_s=table.start_period_sec,
        start_interval_s=table.start_interval_sec,
        retries=table.retries,
    )


def _agents_user(said: TaskToml) -> str:
    """The user of the agent's programs. Raises TaskRefused where steps have several."""
    users = [said.agent.user if one.agent.user is None else one.agent.user for one in said.steps]
    for step, user in zip(said.steps, users, strict=True):
        if user != users[0]:
            raise TaskRefused(
                place(f"steps.{step.name}.agent.user"),
                "differs from another step's user; use one user for all steps",
            )
    return _user(users[0] if users else said.agent.user)


def _user(given: User) -> str:
    return "" if given is None else str(given)


def _without_canary(text: str) -> str:
    """An instruction without the marks at its beginning that keep it out of training data."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])
