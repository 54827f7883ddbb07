"""Outputs of runs that were written before there was a journal: they get one.

Such a run has its rows, its failures and `NAME.run.json`. A failed rollout could have several
rows of failures, and one that was tried again later a row beside them; only the last counts, and
the others are superseded. The journal is made beside the output and put in its place once it is
whole; until then the output is as it was. Called by `output`, when such a run is resumed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.journal.disk import Disk, cannot_write, lock, reason
from gymmesh_client.journal.frames import HEADER, encode_frame
from gymmesh_client.journal.keys import rollout_key
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILED,
    FAILURES,
    FORMAT,
    RETRY,
    ROWS,
    Outcome,
    Place,
    Record,
    Session,
    Superseded,
    encode,
    is_run_id,
)
from gymmesh_client.problems import UserError
from gymmesh_client.replacing import draft_of
from gymmesh_responses import CodecError, loads

_PER_COMMIT: Final = 1000


class OldRun(NamedTuple):
    """What `NAME.run.json` says."""

    run_id: str
    tasks: str
    config: str


def read_old_run(files: OutputFiles) -> OldRun | None:
    """The identity of a run without a journal; None where there is no such run.

    Raises:
        UserError: the file is damaged.
    """
    try:
        document = loads(files.run.read_bytes())
        if "sessions" in document:  # it is of a run with a journal, which is missing
            return None
        if not is_run_id(document["run_id"]):
            raise UserError(f"{files.run}: its run_id is none, so {files.rows} cannot be resumed")
        return OldRun(
            document["run_id"], str(document["tasks_sha256"]), str(document["config_sha256"])
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{files.run}: cannot be read: {reason(error)}") from None
    except (CodecError, KeyError, TypeError):
        raise UserError(f"{files.run}: is damaged, so {files.rows} cannot be resumed") from None


def migrate(files: OutputFiles, old: OldRun, disk: Disk | None = None) -> None:
    """Write the journal of an output that has none.

    Raises:
        UserError: a row is damaged, or a rollout has two; nothing was changed.
        OutputError: the disk takes nothing.
    """
    disk = disk or Disk()
    plain = OutputFiles(files.rows)
    completed = list(_read(plain.shard(0), ROWS))
    done: dict[bytes, int] = {}
    for one in completed:
        if one.outcome.key in done:
            raise UserError(
                f"{plain.shard(0)}:{one.line}: is of task {one.task!r} repeat {one.repeat},"
                " which an earlier line has; remove one of them"
            )
        done[one.outcome.key] = one.line
    draft = draft_of(files.journal)
    session = {
        "format": FORMAT,
        "run_id": old.run_id,
        "identity": {"tasks": old.tasks, "config": old.config, "version": ""},
        "session": 1,
        "repeats": 1 + max((one.repeat for one in completed), default=0),
        "shard_rows": None,
        "zstd": False,
        "adopted": True,
    }
    try:
        records = [
            Session(session),
            *_failures(plain, done),
            *(one.outcome for one in completed),
        ]
        fd = disk.open(draft)
        try:
            lock(fd, files.journal)
            disk.cut(fd, 0)
            _write(disk, fd, records)
        finally:
            os.close(fd)
        disk.replace(draft, files.journal)
        files.run.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(files.journal, error) from None


class _Row(NamedTuple):
    line: int
    task: str
    repeat: int
    outcome: Outcome


def _failures(files: OutputFiles, done: dict[bytes, int]) -> Iterator[Record]:
    """The failures' records."""
    rows = list(_read(files.failures, FAILURES))
    last = {row.outcome.key: row.line for row in rows}
    for row in rows:
        key, attempt, _, _, place = row.outcome
        yield row.outcome
        if key in done or last[key] != row.line:
            yield Superseded(key, attempt, RETRY, place)


def _read(path: Path, kind: int) -> Iterator[_Row]:
    """The rows of a file; a last line with no newline is a torn write and no row."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        offset = 0
        for line, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                return
            try:
                row = loads(raw)
            except CodecError as error:
                raise UserError(f"{path}:{line}: is damaged: {error.problem}") from None
            if type(row) is not dict:
                raise UserError(f"{path}:{line}: is not a rollout's row")
            yield _row(path, line, raw, row, Place(kind, 0, offset, 0, len(raw), len(raw), 0))
            offset += len(raw)


def _row(path: Path, line: int, raw: bytes, row: dict[str, Any], place: Place) -> _Row:
    task, repeat, name = row.get("task_id"), row.get("repeat_index"), row.get("rollout_id")
    if type(task) is not str or type(repeat) is not int or type(name) is not str:
        raise UserError(f"{path}:{line}: has no task_id, repeat_index and rollout_id")
    attempt = row.get("attempt")
    status, boundary = COMPLETED, 0
    if place.kind == FAILURES:
        failure = row.get("failure")
        named = failure.get("boundary") if type(failure) is dict else ""
        status = FAILED
        boundary = dict(rollout_pb2.Boundary.items()).get(f"BOUNDARY_{named}", 0)
    place = place._replace(crc=zlib.crc32(raw))
    outcome = Outcome(
        rollout_key(name), attempt if type(attempt) is int else 1, status, boundary, place
    )
    return _Row(line, task, repeat, outcome)


def _write(disk: Disk, fd: int, records: list[Record]) -> None:
    """Write the whole journal; every commit but the last is simply full."""
    disk.write(fd, HEADER, 0)
    end = len(HEADER)
    for sequence, first in enumerate(range(0, len(records), _PER_COMMIT)):
        payload = b"".join(map(encode, records[first : first + _PER_COMMIT]))
        frame = encode_frame(sequence, 0, payload)
        disk.write(fd, frame, end)
        end += len(frame)
    disk.sync(fd)
