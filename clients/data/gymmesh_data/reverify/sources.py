"""The rollouts to judge: of runs, or of files of rows."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_client import OutputFiles, open_run
from gymmesh_client.problems import UserError, unreadable
from gymmesh_client.run_file import read_run_file
from gymmesh_data.reverify.task_source import TaskSource, tasks_of_run
from gymmesh_data.rollout import StoredRollout, object_of, text_of
from gymmesh_data.sources import distinct, files_of, is_run, read_rollouts, run_of_failures

_ENVIRONMENTS: Final = """
    SELECT DISTINCT environment FROM attempts WHERE current = 1 AND outcome = 'completed'
"""
_FAILED: Final = """
    SELECT environment, boundary, COUNT(*) FROM attempts
    WHERE current = 1 AND outcome = 'failed' GROUP BY environment, boundary
"""


@dataclass(frozen=True, slots=True)
class Source:
    """Where rollouts come from.

    Attributes:
        paths: outputs of `gym-cli collect`, or files of such rows.
        environments: only rollouts of these environments; empty: of all environments.
        default: the environment of rows that name none; empty: every row must name one.
    """

    paths: Sequence[Path]
    environments: frozenset[str] = frozenset()
    default: str = ""

    def names(self) -> frozenset[str]:
        """The names of the rollouts' environments. Reads the files.

        Raises:
            UserError: a file cannot be read, or a row names no environment.
        """
        found: set[str] = set()
        for path in self.paths:
            found |= _of_run(path) if is_run(path) else set()
            if not is_run(path) or "" in found:
                found.discard("")
                found |= {self.environment_of(one) for one in read_rollouts([path])}
        return frozenset(found & self.environments if self.environments else found)

    def takes(self, rollout: StoredRollout) -> bool:
        """Whether a rollout is of one of the selected environments."""
        return not self.environments or self.environment_of(rollout) in self.environments

    def environment_of(self, rollout: StoredRollout) -> str:
        """The environment that judges a rollout. Raises UserError if the row names none."""
        name = rollout.environment or self.default
        if not name:
            raise UserError(
                f"{rollout.where}: environment: is missing. Pass --env NAME: the environment NAME "
                "then scores all rollouts without the key 'environment'"
            )
        return name

    def rollouts(self) -> Iterator[tuple[StoredRollout, Path]]:
        """The rollouts, each with its path. Raises UserError."""
        for path in distinct(self.paths):
            for rollout in read_rollouts([path]):
                yield rollout, path

    def failed(self) -> dict[Path, Counter[str]]:
        """For each run of the source: how many of its rollouts failed, by boundary (empty:
        unknown). A run whose failures file is in the source counts too. Runs without failed
        rollouts are left out.
        """
        found: dict[Path, Counter[str]] = {}
        for path in distinct(self.paths):
            run = path if is_run(path) else run_of_failures(path)
            if run is None or run in found:
                continue
            counts: Counter[str] = Counter()
            for name, boundary, count in _from_index(run, _FAILED):
                if not self.environments or (name or self.default) in self.environments:
                    counts[boundary or ""] += count
            if counts:
                found[run] = counts
        return found

    def run(self) -> tuple[str, int]:
        """The run's id and repeats, if the source is one run; else an empty id."""
        if len(self.paths) == 1 and is_run(self.paths[0]):
            with open_run(self.paths[0]) as run:
                return run.run_id, int(run.info.get("repeats", 1))
        return "", 1

    def tasks(self) -> dict[Path, TaskSource]:
        """The task files of the runs, if they are known and unchanged."""
        found = ((path, tasks_of_run(path)) for path in self.paths if is_run(path))
        return {path: tasks for path, tasks in found if tasks is not None}

    def uses(self) -> dict[str, str]:
        """The class or function of each environment in these runs, from NAME.run.json, in the form
        of `use:` relative to the working directory.
        """
        found: dict[str, str] = {}
        for path in self.paths:
            about = read_run_file(OutputFiles(path).run) if is_run(path) else {}
            environments = object_of(object_of(about, "configuration"), "environments")
            folder = text_of(object_of(about, "asked"), "folder")
            for name in environments:
                if use := text_of(object_of(environments, name), "use"):
                    found.setdefault(name, _from_here(use, Path(folder)))
        return found

    def files(self) -> list[Path]:
        """All files that belong to the sources."""
        return files_of(self.paths)

    def digest(self) -> str:
        """SHA-256 (hex) of the rows. Raises UserError if they cannot be read."""
        digest = hashlib.sha256()
        for path in self.paths:
            for file in _row_files(path):
                try:
                    with file.open("rb") as opened:
                        hashlib.file_digest(opened, lambda: digest)
                except OSError as error:
                    raise unreadable(file, error) from None
        return digest.hexdigest()


def _from_here(use: str, folder: Path) -> str:
    """A `use:` that names a file in a folder, as it names the file from the working directory."""
    file, colon, name = use.rpartition(":")
    if not file.endswith(".py"):
        return use
    path, here = folder / file, Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}{colon}{name}"


def _row_files(path: Path) -> Collection[Path]:
    if not is_run(path):
        return [path]
    with open_run(path) as run:
        return run.files.all_shards()


def _of_run(path: Path) -> set[str]:
    """The environments of a run's completed rollouts."""
    return {str(name or "") for (name,) in _from_index(path, _ENVIRONMENTS)}


def _from_index(path: Path, query: str) -> list[tuple[Any, ...]]:
    open_run(path).close()  # which brings the index up to date
    index = OutputFiles(path).index.absolute()
    with closing(sqlite3.connect(f"{index.as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        return base.execute(query).fetchall()
