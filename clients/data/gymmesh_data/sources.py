"""Rows of runs and of files, one after another, each with the place it came from.

A path with a journal beside it is a run: the run's current rows are read, even while the run is
active, and each row is compared with its checksum in the journal. The file of a run's failures is
read in the same way. Any other file, such as another program's rollouts, is read as JSON lines, and
a log line says that its rows are not verified.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from gymmesh_client import OutputFiles, open_run
from gymmesh_client.problems import UserError, unreadable
from gymmesh_data.rollout import StoredRollout, rollout_of_line

_LOG: Final = logging.getLogger(__name__)
_READ_BYTES: Final = 128 * 1024
_FAILURES: Final = ".failures.jsonl"
_SHARD: Final = re.compile(r"(.+)-[0-9]{5,}\.jsonl(?:\.zst)?")


def read_rollouts(paths: Iterable[Path]) -> Iterator[StoredRollout]:
    """The rollouts of some runs and files, in the order of the rows. A path that is passed twice is
    read once.

    Raises:
        UserError: a file cannot be read, or a row is not a rollout's.
    """
    for path in distinct(paths):
        if is_run(path):
            yield from _run(path)
        elif (run := run_of_failures(path)) is not None:
            yield from _run(run, failed=True)
        else:
            yield from _file(path)


def is_run(path: Path) -> bool:
    """Whether a path is a run, not any other file."""
    return OutputFiles(path).journal.exists()


def run_of_failures(path: Path) -> Path | None:
    """The run whose failures a path names, such as `out.jsonl` of `out.failures.jsonl`; None where
    it names another file.
    """
    stem = path.name.removesuffix(_FAILURES)
    if stem in ("", path.name):
        return None
    bare = path.with_name(stem)  # of an output that was named without a suffix
    run = bare if bare.is_file() else path.with_name(f"{stem}.jsonl")
    return run if is_run(run) else None


def run_of_shard(path: Path) -> Path | None:
    """The run of which a path names one shard, such as `out.jsonl` of `out-00000.jsonl.zst`; None
    where it names another file.
    """
    found = _SHARD.fullmatch(path.name)
    run = None if found is None else path.with_name(f"{found[1]}.jsonl")
    return run if run is not None and is_run(run) else None


def files_of(paths: Iterable[Path]) -> list[Path]:
    """All files that belong to the paths. For a run, this includes its journal and other files."""
    found = list(paths)
    for path in tuple(found):
        found += [one for one in OutputFiles(path).everything() if one.exists()]
    return found


def distinct(paths: Iterable[Path]) -> list[Path]:
    """The paths, each run and file once, even if several paths name it."""
    found: dict[Path, Path] = {}
    for path in paths:
        journal = OutputFiles(path).journal
        found.setdefault((journal if journal.exists() else path).resolve(), path)
    return list(found.values())


def read_outcomes(paths: Iterable[Path]) -> Iterator[StoredRollout]:
    """The completed rollouts of each path, then the path's failed rollouts. A path that is passed
    twice is read once.
    Raises the errors of `read_rollouts`.

    For a run, only its current failures. For a file NAME.jsonl, those of NAME.failures.jsonl in the
    same folder, if that file exists.
    """
    for path in distinct(paths):
        yield from read_rollouts([path])
        failures = OutputFiles(path).failures
        if is_run(path):
            yield from failures_of(path)
        elif failures.exists() and failures.resolve() != path.resolve():
            yield from read_rollouts([failures])


def read_failures(paths: Iterable[Path]) -> Iterator[StoredRollout]:
    """The failed rollouts of each path, as `read_outcomes`. Raises UserError."""
    for path in distinct(paths):
        if is_run(path):
            yield from failures_of(path)
        else:
            yield from (one for one in read_outcomes([path]) if one.failed)


def failures_of(path: Path) -> Iterator[StoredRollout]:
    """The current failures of a run. Raises UserError."""
    yield from _run(path, failed=True)


def _run(path: Path, *, failed: bool = False) -> Iterator[StoredRollout]:
    _refuse_other_name(path)
    with open_run(path) as run:
        for row in run.stored(failed=failed):
            yield rollout_of_line(row.line, row.where)


def _refuse_other_name(path: Path) -> None:
    """Refuse a name that only shares a run's journal, such as `out` for `out.jsonl`."""
    files = OutputFiles(path)
    run = path.with_name(f"{files.stem}.jsonl")
    if run != path and not files.all_shards() and OutputFiles(run).all_shards():
        raise UserError(f"{path}: does not exist. Pass the run's --output: {run}")


def lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not empty, each after its place. Raises OSError."""
    name = str(path)
    with path.open("rb", _READ_BYTES) as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield f"{name}:{number}", line


@cache
def say_unverified(path: Path) -> None:
    """Log, once for each file, that its rows are not verified."""
    if (run := run_of_failures(path) or run_of_shard(path)) is not None:
        _LOG.warning(
            (
                "%s is read without the journal of its run, so changed rows can't be "
                "detected; pass the run's output instead: %s"
            ),
            *(path, run),
        )
        return
    _LOG.warning("%s: the journal is missing, so changed rows can't be detected", path)


def _file(path: Path) -> Iterator[StoredRollout]:
    if path.suffix == ".zst" and (run := run_of_shard(path)) is not None:
        raise UserError(f"{path}: is one shard of a run. Pass the run's --output: {run}")
    if path.exists():
        say_unverified(path)
    try:
        for where, line in lines_of(path):
            yield rollout_of_line(line, where)
    except OSError as error:
        raise unreadable(path, error) from None
