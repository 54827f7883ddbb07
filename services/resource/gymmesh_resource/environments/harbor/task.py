"""A task folder as it was read, whichever of the two forms it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

TaskNetwork: TypeAlias = "Literal['no-network', 'public'] | Sequence[str]"
"""What a task says that its programs reach: nothing, everything, or the hosts listed."""

PrintedResult: TypeAlias = Literal["pytest", "swebench", "swelancer", "mlebench", "sweperf"]
"""How tests of Terminal-Bench print their result: the name of the parser that reads it there."""

Strategy: TypeAlias = Literal["mean", "final"]
"""How the rewards of steps make the task's: their mean by name, or those of the last step."""


class TaskRefused(Exception):
    """A task folder that cannot be run here.

    place: the file in it, and the key where there is one; empty: the whole. problem: one clause.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}" if place else problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBox:
    """A sandbox that a task asks for: the agent's, or one for its tests alone.

    image: the image that the task names. build: the folder that one is built from instead, and
        without_top: what at its top is left out of the build. files: a folder whose content goes
        into the workdir.
    part: the folder of the task that the image is made from, below the task's; empty: it is the
        agent's image.
    cpus, memory_mb, disk_mb: limits; 0: the sandbox service's default.
    network: what its programs reach. network_refused: why the task's own networks cannot be had.
    env: variables; values may hold `${NAME}`.
    """

    image: str = ""
    build: Path | None = None
    without_top: tuple[str, ...] = ()
    files: Path | None = None
    part: str = ""
    cpus: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    network: TaskNetwork = "public"
    network_refused: TaskRefused | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthcheck:
    """A command that succeeds once a sandbox is ready; times in seconds, as Docker has them."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Artifact:
    """What tests in a sandbox of their own get from the agent's: a file or a folder, without what
    matches one of the patterns.
    """

    path: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookCommand:
    """A command that runs in the agent's sandbox before its tests; user empty: its own."""

    command: str
    timeout_s: float = 60.0
    user: str = ""


@dataclass(frozen=True, slots=True)
class TaskServer:
    """An MCP server that runs in the agent's sandbox: its name, and its command in words."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """A folder of a task, and the paths in it that stay out of every sandbox."""

    path: Path
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTests:
    """The tests of a step.

    folders: whose contents go to /tests, later ones over earlier ones. extra: further files of
        that folder. None of either: the image has the tests.
    script: the one of them that is run.
    printed: how the tests print their result; None: they write reward files.
    same_shell: whether the tests run in the folder and with the variables of the agent's shell.
    time_s, env, user: of the tests. Values of env may hold `${NAME}`.
    box: the sandbox that they run in; None: the agent's.
    """

    folders: tuple[TaskFiles, ...] = ()
    extra: tuple[Path, ...] = ()
    script: str = "test.sh"
    printed: PrintedResult | None = None
    same_shell: bool = False
    time_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    box: TaskBox | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """One instruction with its tests.

    name: empty where the task has no steps.
    agent_s: seconds that the agent may take; 0: no limit.
    files: a folder whose content goes into the workdir before the step. has_setup: whether its
        `setup.sh` runs there then.
    least: rewards below which no further step follows, by name.
    solution: the script that solves the step, and the folder that goes with it, if any.
    solution_text: the content of that script where the task has none as a file.
    """

    name: str = ""
    instruction: str
    agent_s: float = 0.0
    files: Path | None = None
    has_setup: bool = False
    healthcheck: Healthcheck | None = None
    tests: TaskTests
    artifacts: Sequence[Artifact] = ()
    collect: Sequence[HookCommand] = ()
    least: Mapping[str, float] = field(default_factory=dict)
    solution: Path | None = None
    solution_folder: TaskFiles | None = None
    solution_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """What a folder says. Paths are of this machine, and none leads out of the folder.

    box: the agent's sandbox. agent_user: of its programs. healthcheck: before the agent begins.
    steps: one, where the task has no steps. strategy: how their rewards make the task's.
    solution_env: variables of the solutions; values may hold `${NAME}`.
    skills: the folder of the agent's sandbox that has skills; empty: none.
    servers: MCP servers whose tools the agent has.
    """

    box: TaskBox
    agent_user: str = ""
    healthcheck: Healthcheck | None = None
    steps: Sequence[TaskStep]
    strategy: Strategy = "mean"
    solution_env: Mapping[str, str] = field(default_factory=dict)
    skills: str = ""
    servers: Sequence[TaskServer] = ()

    @property
    def instruction(self) -> str:
        """The first instruction."""
        return self.steps[0].instruction


def inside(folder: Path, name: str) -> Path:
    """A path of a task folder. Raises TaskRefused for one that leads out of it by a link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskRefused(name, "is a link to a path outside of the task's folder")
    return path


def read_text(folder: Path, name: str) -> str:
    """A text file of a task folder. Raises TaskRefused."""
    try:
        return inside(folder, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TaskRefused(name, f"cannot be read: {what}") from None


def refuse_there(folder: Path, *names: str) -> None:
    """Raises TaskRefused for a file that is there and means what is not supported."""
    for name in names:
        if (folder / name).exists():
            raise TaskRefused(name, "is not supported")
