"""Rows of runs and of files, one after another, each with the place it came from.

A path beside which there is a journal is a run: its current rows are read, also while it is being
collected. Anything else is read as JSON lines, such as another program's rollouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gymmesh_client import OutputFiles, UserError, open_run
from gymmesh_data.rollout import StoredRollout, stored_rollout
from gymmesh_responses import CodecError, loads


def read_rollouts(paths: Iterable[Path]) -> Iterator[StoredRollout]:
    """The rollouts of some runs and files, in the order in which they stand there.

    Raises:
        UserError: a file cannot be read, or has a row that is no rollout's.
    """
    for path in paths:
        yield from _run(path) if OutputFiles(path).journal.exists() else _file(path)


def _run(path: Path) -> Iterator[StoredRollout]:
    with open_run(path) as run:
        for row in run.rows():
            yield stored_rollout(row, f"{path}: rollout {row.get('rollout_id')}")


def _file(path: Path) -> Iterator[StoredRollout]:
    try:
        name = str(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.isspace():
                    yield _of_line(line, f"{name}:{number}")
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: cannot be read: {cause}") from None


def _of_line(line: bytes, where: str) -> StoredRollout:
    try:
        row = loads(line)
    except CodecError as error:
        raise UserError(f"{where}: is not a line of JSON: {error}") from None
    return stored_rollout(row, where)
