"""Parses `task.toml` of Harbor, versions 1.0 to 1.4."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Any, Final

import msgspec

from gymmesh_resource.environments.harbor.task import TaskRefused

FILE: Final = "task.toml"
_VERSION: Final = re.compile(r"1\.[0-4]")
_PLACE: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=604_800)]
_Pause = Annotated[float, msgspec.Meta(ge=0, le=604_800)]
User = str | int | None


class Phase(msgspec.Struct, frozen=True):
    """What the tables `agent` and `verifier` have in common."""

    timeout_sec: _Seconds | None = None
    user: User = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class HealthcheckTable(msgspec.Struct, frozen=True):
    """The table `healthcheck`."""

    command: str
    interval_sec: _Pause = 5.0
    timeout_sec: _Seconds = 30.0
    start_period_sec: _Pause = 0.0
    start_interval_sec: _Pause = 5.0
    retries: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3


class McpServerTable(msgspec.Struct, frozen=True):
    """An entry of `environment.mcp_servers`."""

    name: str
    transport: str = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []


class EnvironmentTable(msgspec.Struct, frozen=True):
    """The tables `environment` and `verifier.environment`."""

    docker_image: str | None = None
    os: str = "linux"
    cpus: Annotated[float, msgspec.Meta(ge=0, le=1024)] | None = None
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] | None = None
    storage_mb: Annotated[int, msgspec.Meta(ge=0)] | None = None
    memory: str | None = None
    storage: str | None = None
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[McpServerTable] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: HealthcheckTable | None = None
    workdir: str | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None


class CollectTable(msgspec.Struct, frozen=True):
    """An entry of `verifier.collect`."""

    command: str
    service: str = "main"
    timeout_sec: _Seconds = 60.0
    user: User = None


class ArtifactTable(msgspec.Struct, frozen=True):
    """An entry of `artifacts` that is not a plain path."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


class VerifierTable(Phase, frozen=True):
    """The table `verifier`."""

    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: EnvironmentTable | None = None
    collect: list[CollectTable] = []


class StepTable(msgspec.Struct, frozen=True):
    """An entry of `steps`."""

    name: str
    agent: Phase = Phase()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthcheckTable | None = None
    artifacts: list[str | ArtifactTable] = []


class Solution(msgspec.Struct, frozen=True):
    """The table `solution`."""

    env: dict[str, str] = {}


class TaskToml(msgspec.Struct, frozen=True):
    """The whole file."""

    schema_version: str = "1.4"
    version: str | None = None
    agent: Phase = Phase()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: Solution = Solution()
    steps: list[StepTable] = []
    multi_step_reward_strategy: str | None = None
    artifacts: list[str | ArtifactTable] = []


def parsed(text: str) -> TaskToml:
    """The file's content. Raises TaskRefused."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TaskRefused(FILE, f"is not TOML: {error}") from None
    try:
        said = msgspec.convert(document, TaskToml)
    except msgspec.ValidationError as error:
        found = _PLACE.match(str(error))
        problem = found["problem"] if found else str(error)
        where = place(found["place"] or "" if found else "")
        raise TaskRefused(where, f"{problem[:1].lower()}{problem[1:]}") from None
    version = said.version or said.schema_version
    if not _VERSION.fullmatch(version):
        key = "version" if said.version else "schema_version"
        raise TaskRefused(place(key), f"is {version!r}; versions 1.0 to 1.4 are supported")
    return said


def place(key: str) -> str:
    """The place of a key, for a rejection."""
    return f"{FILE} {key}" if key else FILE
