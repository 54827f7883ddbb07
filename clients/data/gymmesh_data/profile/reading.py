"""The outcomes of runs and files: completed rollouts and those that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gymmesh_client import OutputFiles
from gymmesh_data.rollout import StoredRollout
from gymmesh_data.sources import distinct, failures_of, read_rollouts


def read_outcomes(paths: Iterable[Path]) -> Iterator[StoredRollout]:
    """The completed rollouts of each path, then its failed ones; a path given twice is read once.

    The failures of a run are those that are current; those of a file stand in NAME.failures.jsonl
    beside it, if that is there.

    Raises:
        UserError: a file cannot be read, or has a row that is no rollout's.
    """
    for path in distinct(paths):
        yield from read_rollouts([path])
        files = OutputFiles(path)
        if files.journal.exists():
            yield from failures_of(path)
        elif files.failures.exists() and files.failures.resolve() != path.resolve():
            yield from read_rollouts([files.failures])
