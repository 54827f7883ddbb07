"""The sandboxes of a task of Harbor: the agent's, and those for tests alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from gymmesh_resource.environments.harbor.networks import differs, network_of, phase_network
from gymmesh_resource.environments.harbor.task import (
    TaskBox,
    TaskNetwork,
    TaskRefused,
    inside,
    refuse_there,
)
from gymmesh_resource.environments.harbor.toml_schema import (
    FILE,
    EnvironmentTable,
    Phase,
    StepTable,
    TaskToml,
    VerifierTable,
    place,
)

_SIZE: Final = re.compile(r"\s*([0-9.]+)\s*([GMK])\s*", re.IGNORECASE)
_MIB: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_COMPOSE: Final = "docker-compose.yaml"
_AGENTS: Final = "environment"


def agents_box(folder: Path, said: TaskToml) -> TaskBox:
    """The agent's sandbox. Raises TaskRefused."""
    machine = said.environment
    refuse_there(folder, f"{_AGENTS}/{_COMPOSE}")
    around = inside(folder, _AGENTS)
    dockerfile = inside(folder, f"{_AGENTS}/Dockerfile").is_file()
    if not machine.docker_image and not dockerfile:
        raise TaskRefused(
            f"{_AGENTS}/Dockerfile",
            f"is missing, and {FILE} has no key docker_image; add the Dockerfile or this key",
        )
    network, refused = _agents_network(said)
    return replace(
        _bare(machine, "environment"),
        image=machine.docker_image or "",
        build=None if machine.docker_image else around,
        files=around if around.is_dir() and not dockerfile else None,
        network=network,
        network_refused=refused,
    )


def tests_box(
    folder: Path, said: TaskToml, step: StepTable | None, agents: TaskBox
) -> tuple[TaskBox | None, bool]:
    """The sandbox of the tests alone, if they have one, and whether its image has the tests.

    step: None in a task without steps. Raises TaskRefused.
    """
    if not is_separate(said, step):
        return None, False
    tables = [("verifier", said.verifier, "tests")]
    if step is not None:
        own = f"steps.{step.name}.verifier", step.verifier, f"steps/{step.name}/tests"
        tables.insert(0, own)
    table, machine = next(
        ((f"{of}.environment", one.environment) for of, one, _ in tables if one.environment),
        ("environment", said.environment),
    )
    phase = _first_network([(of, one) for of, one, _ in tables])
    box = replace(
        _bare(machine, table),
        network=network_of(machine, table) if phase is None else phase[1],
    )
    for _, one, part in tables:
        refuse_there(folder, f"{part}/{_COMPOSE}")
        if one.environment is not None and one.environment.docker_image:
            return replace(box, image=one.environment.docker_image, part=part), True
        if inside(folder, f"{part}/Dockerfile").is_file():
            return replace(box, build=inside(folder, part), part=part), True
    return replace(box, image=agents.image, build=agents.build, files=agents.files), False


def is_separate(said: TaskToml, step: StepTable | None) -> bool:
    """Whether tests have a sandbox of their own. Raises TaskRefused."""
    mode = _mode(said.verifier, "verifier")
    if step is not None:
        mode = _mode(step.verifier, f"steps.{step.name}.verifier") or mode
    return mode == "separate"


def _mode(verifier: VerifierTable, table: str) -> Literal["shared", "separate"] | None:
    mode = verifier.environment_mode
    if mode == "separate" or (mode is None and verifier.environment is not None):
        return "separate"
    if mode is None:
        return None
    if mode != "shared":
        raise TaskRefused(
            place(f"{table}.environment_mode"), f"is {mode!r}; use 'shared' or 'separate'"
        )
    if verifier.environment is not None:
        raise TaskRefused(
            place(f"{table}.environment"),
            "is set, but environment_mode is 'shared'; remove this table, or set environment_mode "
            "to 'separate'",
        )
    return "shared"


def _bare(machine: EnvironmentTable, table: str) -> TaskBox:
    """A table's limits and variables. Raises TaskRefused for what no sandbox here has."""
    for key, value in (("gpus", machine.gpus), ("tpu", machine.tpu)):
        if value:
            raise TaskRefused(place(f"{table}.{key}"), "is not supported")
    if machine.os.lower() != "linux":
        raise TaskRefused(place(f"{table}.os"), f"is {machine.os!r}; only 'linux' is supported")
    if machine.workdir and not machine.workdir.startswith("/"):
        raise TaskRefused(place(f"{table}.workdir"), "is not an absolute path")
    return TaskBox(
        cpus=machine.cpus or 0.0,
        memory_mb=_mib(f"{table}.memory", machine.memory_mb, machine.memory),
        disk_mb=_mib(f"{table}.storage", machine.storage_mb, machine.storage),
        env=machine.env,
        workdir=machine.workdir or "",
    )


def _agents_network(said: TaskToml) -> tuple[TaskNetwork, TaskRefused | None]:
    """What the agent's sandbox reaches, and why its phases cannot have what they ask for."""
    base = "", network_of(said.environment, "environment")
    asked: list[tuple[str, TaskNetwork]] = []
    steps: Sequence[StepTable | None] = said.steps or [None]
    for step in steps:
        agents: list[tuple[str, Phase]] = [("agent", said.agent)]
        tests: list[tuple[str, Phase]] = [("verifier", said.verifier)]
        if step is not None:
            agents.insert(0, (f"steps.{step.name}.agent", step.agent))
            tests.insert(0, (f"steps.{step.name}.verifier", step.verifier))
        asked.append(_first_network(agents) or base)
        if not is_separate(said, step):
            asked.append(_first_network(tests) or base)
    network = asked[0][1]
    other = next((table for table, one in asked if one != network), None)
    if other is None:
        return network, None
    # One that says nothing itself has the environment's, from which the other one differs.
    return network, differs(other or asked[0][0])


def _first_network(tables: Sequence[tuple[str, Phase]]) -> tuple[str, TaskNetwork] | None:
    for table, phase in tables:
        network = phase_network(phase, table)
        if network is not None:
            return table, network
    return None


def _mib(key: str, amount: int | None, text: str | None) -> int:
    """MiB, which versions before 1.1 give as a text such as `2G`."""
    if amount is not None or text is None:
        return amount or 0
    found = _SIZE.fullmatch(text)
    try:
        return int(float(found[1]) * _MIB[found[2].upper()]) if found else int(text) // (1 << 20)
    except ValueError:
        raise TaskRefused(place(key), f"is {text!r}; write a size such as 512M or 2G") from None
