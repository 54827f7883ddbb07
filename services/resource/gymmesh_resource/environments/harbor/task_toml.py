"""Reads a task folder of Harbor: `task.toml` of the versions 1.0 to 1.4, with a single step.

Keys that these versions do not define are ignored, as Harbor ignores them. What they define and
is not done here is refused by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from gymmesh_resource.environments.harbor.task import (
    HarborTask,
    TaskNetwork,
    TaskRefused,
    inside,
    read_text,
    refuse_there,
)

FILE: Final = "task.toml"
_VERSION: Final = re.compile(r"1\.[0-4]")
_PLACE: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_SIZE: Final = re.compile(r"\s*([0-9.]+)\s*([GMK])\s*", re.IGNORECASE)
_MIB: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]
_User = str | int | None


class _Phase(msgspec.Struct, frozen=True):
    """What the tables `agent` and `verifier` have in common."""

    timeout_sec: _Seconds | None = None
    user: _User = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class _Verifier(_Phase, frozen=True):
    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class _Machine(msgspec.Struct, frozen=True):
    """The table `environment`."""

    docker_image: str | None = None
    build_timeout_sec: _Seconds = 600.0
    os: str = "linux"
    cpus: Annotated[float, msgspec.Meta(ge=0, le=1024)] | None = None
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] | None = None
    storage_mb: Annotated[int, msgspec.Meta(ge=0)] | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    workdir: str | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None


class _Solution(msgspec.Struct, frozen=True):
    env: dict[str, str] = {}


class _TaskToml(msgspec.Struct, frozen=True):
    schema_version: str = "1.4"
    version: str | None = None
    agent: _Phase = _Phase()
    verifier: _Verifier = _Verifier()
    environment: _Machine = _Machine()
    solution: _Solution = _Solution()
    steps: list[Any] = []
    artifacts: list[Any] = []


def read_harbor(folder: Path) -> HarborTask:
    """Reads a folder. Raises TaskRefused."""
    said = _parsed(read_text(folder, FILE))
    _refuse(said)
    refuse_there(
        folder, "trajectory.json", "environment/docker-compose.yaml", "tests/.harborignore"
    )
    machine, verifier = said.environment, said.verifier
    around = inside(folder, "environment")
    dockerfile = inside(folder, "environment/Dockerfile").is_file()
    if not machine.docker_image and not dockerfile:
        raise TaskRefused("environment/Dockerfile", f"is missing, and {FILE} has no docker_image")
    if not inside(folder, "tests/test.sh").is_file():
        raise TaskRefused("tests/test.sh", "is missing")
    solved = inside(folder, "solution/solve.sh").is_file()
    return HarborTask(
        instruction=_without_canary(read_text(folder, "instruction.md")),
        image=machine.docker_image or "",
        build=None if machine.docker_image else around,
        files=around if around.is_dir() and not dockerfile else None,
        cpus=machine.cpus or 0.0,
        memory_mb=_mib("memory", machine.memory_mb, machine.memory),
        disk_mb=_mib("storage", machine.storage_mb, machine.storage),
        build_s=machine.build_timeout_sec,
        network=_network(said),
        env=machine.env,
        workdir=machine.workdir or "",
        agent_user=_user(said.agent.user),
        agent_s=said.agent.timeout_sec or 0.0,
        tests=inside(folder, "tests"),
        verifier_s=verifier.timeout_sec or 600.0,
        verifier_env=verifier.env,
        verifier_user=_user(verifier.user),
        solution=folder / "solution/solve.sh" if solved else None,
        solution_folder=inside(folder, "solution") if solved else None,
        solution_env=said.solution.env,
    )


def _parsed(text: str) -> _TaskToml:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TaskRefused(FILE, f"is not TOML: {error}") from None
    try:
        said = msgspec.convert(document, _TaskToml)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        problem = found["problem"] if found else str(error)
        place = _place(found["place"] or "" if found else "")
        raise TaskRefused(place, f"{problem[:1].lower()}{problem[1:]}") from None
    version = said.version or said.schema_version
    if not _VERSION.fullmatch(version):
        key = "version" if said.version else "schema_version"
        raise TaskRefused(_place(key), f"is {version!r}; 1.0 to 1.4 are known")
    return said


def _refuse(said: _TaskToml) -> None:
    """Raises TaskRefused for what the format has and is not done here."""
    machine, verifier = said.environment, said.verifier
    unsupported: Mapping[str, object] = {
        "steps": said.steps,
        "artifacts": said.artifacts,
        "environment.gpus": machine.gpus,
        "environment.tpu": machine.tpu,
        "environment.mcp_servers": machine.mcp_servers,
        "environment.skills_dir": machine.skills_dir,
        "environment.healthcheck": machine.healthcheck,
        "verifier.environment": verifier.environment,
        "verifier.collect": verifier.collect,
    }
    for key, value in unsupported.items():
        if value:
            raise TaskRefused(_place(key), "is not supported")
    if machine.os.lower() != "linux":
        raise TaskRefused(_place("environment.os"), f"is {machine.os!r}; only linux is supported")
    if verifier.environment_mode not in (None, "shared"):
        raise TaskRefused(
            _place("verifier.environment_mode"),
            f"is {verifier.environment_mode!r}; only shared is supported",
        )
    if machine.workdir and not machine.workdir.startswith("/"):
        raise TaskRefused(_place("environment.workdir"), "is not an absolute path")


def _network(said: _TaskToml) -> TaskNetwork:
    """What the sandbox reaches. One sandbox has one network, so the phases must agree."""
    machine = said.environment
    mode = machine.network_mode
    if mode is None and machine.allowed_hosts is None and machine.allow_internet is False:
        mode = "no-network"
    network = _mode("environment", mode or "public", machine.allowed_hosts)
    for name, phase in (("agent", said.agent), ("verifier", said.verifier)):
        if phase.network_mode is None:
            continue
        if _mode(name, phase.network_mode, phase.allowed_hosts) != network:
            raise TaskRefused(
                _place(f"{name}.network_mode"), "differs from the environment's; not supported"
            )
    return network


def _mode(table: str, mode: str, hosts: Sequence[str] | None) -> TaskNetwork:
    if mode != "allowlist" and hosts:
        raise TaskRefused(_place(f"{table}.allowed_hosts"), "needs the network_mode allowlist")
    if mode == "no-network":
        return "no-network"
    if mode == "public":
        return "public"
    if mode != "allowlist":
        raise TaskRefused(
            _place(f"{table}.network_mode"), f"is {mode!r}: no-network, public or allowlist"
        )
    for host in hosts or ():
        if ":" in host or "/" in host or not host.strip():
            raise TaskRefused(
                _place(f"{table}.allowed_hosts"), f"has {host!r}; only names are supported"
            )
    return tuple(host.strip().lower().rstrip(".") for host in hosts or ())


def _mib(key: str, amount: int | None, text: str | None) -> int:
    """MiB, which versions before 1.1 give as a text such as `2G`."""
    if amount is not None or text is None:
        return amount or 0
    found = _SIZE.fullmatch(text)
    try:
        return int(float(found[1]) * _MIB[found[2].upper()]) if found else int(text) // (1 << 20)
    except ValueError:
        raise TaskRefused(_place(f"environment.{key}"), f"is {text!r}; write 512M or 2G") from None


def _user(given: _User) -> str:
    return "" if given is None else str(given)


def _place(key: str) -> str:
    return f"{FILE} {key}" if key else FILE


def _without_canary(text: str) -> str:
    """An instruction without the marks at its beginning that keep it out of training data."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])
