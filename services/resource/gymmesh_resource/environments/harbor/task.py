"""A task folder as it was read, whichever of the two forms it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

TaskNetwork: TypeAlias = "Literal['no-network', 'public'] | Sequence[str]"
"""What a task says that its programs reach: nothing, everything, or the hosts listed."""

RewardSource: TypeAlias = Literal["reward_file", "pytest_summary"]


class TaskRefused(Exception):
    """A task folder that cannot be run here.

    place: the file in it, and the key where there is one. problem: one clause.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """What a folder says. Paths are of this machine, and none leads out of the folder.

    image: the image that the task names. build: the folder that one is built from instead, and
        without_top: what at its top is left out of the build. files: a folder whose content goes
        into the workdir.
    cpus, memory_mb, disk_mb, build_s: limits; 0: the sandbox service's default.
    env, workdir, agent_user: of the sandbox. Values of env may hold `${NAME}`.
    agent_s: seconds that the agent may take; 0: no limit.
    tests: the folder of the tests. test_script: the one of them that is run. extra_tests: further
        files of that folder, by name.
    rewards: where the reward comes from.
    verifier_s, verifier_env, verifier_user: of the tests.
    solution: the script that solves the task, and the folder that goes with it, if any.
    """

    instruction: str
    image: str = ""
    build: Path | None = None
    without_top: tuple[str, ...] = ()
    files: Path | None = None
    cpus: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    build_s: float = 0.0
    network: TaskNetwork = "public"
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    agent_user: str = ""
    agent_s: float = 0.0
    tests: Path
    test_script: str = "test.sh"
    extra_tests: Mapping[str, Path] = field(default_factory=dict)
    rewards: RewardSource = "reward_file"
    verifier_s: float = 600.0
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    verifier_user: str = ""
    solution: Path | None = None
    solution_folder: Path | None = None
    solution_env: Mapping[str, str] = field(default_factory=dict)


def inside(folder: Path, name: str) -> Path:
    """A path of a task folder. Raises TaskRefused for one that leads out of it by a link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskRefused(name, "leads out of the task's folder")
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
