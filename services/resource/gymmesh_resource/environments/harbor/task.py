"""The content of a task folder, of Harbor or of Terminal-Bench."""

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
    """A task folder that gymmesh cannot run.

    place: the file of the folder, and the key if any; empty: the whole folder. problem: one clause.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}" if place else problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBox:
    """A sandbox that a task needs: the agent's, or one for its tests alone.

    image: the image that the task names. build: without an image, the folder to build one from.
        without_top: top-level entries of this folder that the build does not get. files: a folder
        whose content is copied into the workdir.
    part: the folder, below the task's, from which the image is built; empty: the agent's image.
    cpus, memory_mb, disk_mb: limits; 0: the sandbox service's default.
    network: what programs of the sandbox can reach. network_refused: why the task's own networks
        are not possible, if so.
    env: variables; values may contain `${NAME}`.
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
    """A file or folder of the agent's sandbox that tests in a separate sandbox get, except paths
    that match one of the patterns.
    """

    path: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookCommand:
    """A command that runs in the agent's sandbox before the tests. No user: the sandbox's."""

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

    folders: their contents are copied to /tests, later folders over earlier ones. extra: further
        files of /tests. Without folders and extra files, the image has the tests.
    script: the file of /tests that is run.
    printed: how the tests print their result; None: the tests write reward files.
    same_shell: whether the tests run in the folder and with the variables of the agent's shell.
    time_s, env, user: of the tests. Values of env may contain `${NAME}`.
    box: the sandbox in which the tests run; None: the agent's.
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

    name: empty if the task has no steps.
    agent_s: seconds for the agent; 0: no limit.
    files: a folder whose content is copied into the workdir before the step. has_setup: whether its
        `setup.sh` then runs there.
    least: by name, the rewards that the step must reach for a further step.
    solution: the script that solves the step, and the folder that the script needs, if any.
    solution_text: the content of the script, if the task has no file of it.
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
    """The content of a task folder. All paths are on this machine, inside the folder.

    box: the agent's sandbox. agent_user: the user of the agent's programs. healthcheck: a check
        before the agent begins.
    steps: the steps; one if the task has no steps. strategy: how the rewards of the steps are
        combined.
    solution_env: variables of the solutions; values may contain `${NAME}`.
    skills: the folder of the agent's sandbox that has skills; empty: no skills.
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
    """A path of a task folder. Raises TaskRefused for a path, or link, out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskRefused(name, "leads to a path outside of the task's folder")
    return path


def read_text(folder: Path, name: str) -> str:
    """A text file of a task folder. Raises TaskRefused."""
    try:
        return inside(folder, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TaskRefused(name, f"cannot be read: {what}") from None


def refuse_there(folder: Path, *names: str) -> None:
    """Raises TaskRefused if one of these files exists, because none of them is supported."""
    for name in names:
        if (folder / name).exists():
            raise TaskRefused(name, "is not supported")
