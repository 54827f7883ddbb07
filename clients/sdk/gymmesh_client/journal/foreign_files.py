"""Whether files that are in a run's way are a run's: nothing else is ever replaced or removed."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import Any, Final

from gymmesh_client.journal.format.frames import HEADER
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.index.tables import APPLICATION_ID, INDEX_BEGIN
from gymmesh_client.journal.row_files import ZSTD_FRAME
from gymmesh_client.replacing import draft_of, first_object, refuse_foreign
from gymmesh_responses import CodecError, loads

_APPLICATION_ID: Final = struct.Struct(">68xi")
_TRACE_BLOCK: Final = struct.pack("<I", 0x184D2A51)
_SUMMARY: Final = b'{\n  "run_id": "'
_SKIPPED: Final = b'{"line": '
_LOG: Final = b"# gym-cli: "
_TASK_LINES: Final = b"\x89gymmesh tasks\n\x01\n"
_WHAT: Final = "a run's output"


def refuse_foreign_files(files: OutputFiles, *, resuming: bool = False) -> None:
    """Refuse a run where one of its files is there already and is something else.

    Args:
        resuming: the run is there, and its journal says what its rows are.

    Raises:
        UserError: a file is no run's; nothing was changed.
    """
    known = _has_journal(files)
    begins = {
        files.journal: HEADER,
        draft_of(files.journal): HEADER,
        files.trace: _TRACE_BLOCK,
        files.log: _LOG,
        # A kill may have left half of a draft.
        draft_of(files.summary): _SUMMARY,
        draft_of(files.skipped): _SKIPPED,
        draft_of(files.run): _SUMMARY,
        files.task_lines: _TASK_LINES,
        draft_of(files.task_lines): _TASK_LINES,
    }
    written_whole = (files.journal, files.summary, files.skipped, files.run, files.task_lines)
    drafts = map(draft_of, written_whole)
    beside = (files.index, files.trace, files.log, *written_whole[1:], *drafts)
    for path in beside if resuming else files.everything():
        if path in begins:
            refuse_foreign(path, partial(_begins, begin=begins[path]), _WHAT)
        elif path == files.index:
            refuse_foreign(path, _is_index, _WHAT)
        elif path in (files.run, files.summary):
            refuse_foreign(path, _is_about_a_run, _WHAT)
        elif ".jsonl.zst" in path.name:
            # Without a decompressor only the journal says whose it is.
            refuse_foreign(path, lambda one: known and _begins(one, ZSTD_FRAME), _WHAT)
        else:
            refuse_foreign(path, lambda one: _has_rows(one, known), _WHAT)


def _has_journal(files: OutputFiles) -> bool:
    for path in (files.journal, draft_of(files.journal)):
        try:
            if _begins(path, HEADER):
                return True
        except OSError:
            continue
    try:
        return _is_about_a_run(files.run)
    except OSError:
        return False


def _is_index(path: Path) -> bool:
    """Whether a file is an index."""
    with path.open("rb") as file:
        head = file.read(_APPLICATION_ID.size)
    if len(head) < _APPLICATION_ID.size or not head.startswith(INDEX_BEGIN):
        return False
    return bool(_APPLICATION_ID.unpack(head) == (APPLICATION_ID,))


def _begins(path: Path, begin: bytes) -> bool:
    """Whether a file begins so, or is so short that it may have been going to."""
    with path.open("rb") as file:
        found = file.read(len(begin))
    return bool(found) and begin.startswith(found)


def _has_rows(path: Path, known: bool) -> bool:
    """Whether rows of a run are in it. Where there is a journal, the first may be torn."""
    row = first_object(path)
    if row is None:
        return known
    return _is_text(row, "task_id", "rollout_id") or _is_skipped(row)


def _is_skipped(row: dict[str, Any]) -> bool:
    return set(row) == {"line", "key", "problem"}


def _is_about_a_run(path: Path) -> bool:
    try:
        document = loads(path.read_bytes())
    except CodecError:
        return False
    return type(document) is dict and _is_text(document, "run_id")


def _is_text(row: dict[str, Any], *keys: str) -> bool:
    return all(type(row.get(key)) is str for key in keys)
