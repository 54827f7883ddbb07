"""Whether files that are in a run's way are a run's: nothing else is ever replaced or removed."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from gymmesh_client.index import APPLICATION_ID, INDEX_BEGIN
from gymmesh_client.log import HEADER
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.row_files import FRAME_START
from gymmesh_client.safe_writes import draft_of, first_object, refuse_foreign
from gymmesh_responses import CodecError, loads

_TRACE_BLOCK: Final = struct.pack("<I", 0x184D2A51)
_SUMMARY: Final = b'{\n  "run_id": "'
_SKIPPED: Final = b'{"line": '
_GROUPS: Final = b'{"record":"groups",'
_LOG: Final = b"# gym-cli: "
_EXAMPLES: Final = b'{"task_id":"'
_TASK_LINES: Final = b"\x89gymmesh tasks\n\x01\n"


def refuse_foreign_files(files: OutputFiles) -> None:
    """Refuse, by a UserError, a new run where one of its files already exists and is something
    else.
    """
    tests = _tests(files)
    has_rows = partial(_has_rows, known=_has_journal(files))
    for path in files.everything():
        refuse_foreign(path, tests.get(path, has_rows), "a run's output")


def set_aside_unreadable(files: OutputFiles) -> list[str]:
    """Make room for a run's derived files where one is damaged, or somebody else's: it is renamed
    to NAME.damaged, or NAME.damaged.2 and so on where there is one. Returns what the user should
    know, a sentence each. Raises OSError.

    The journal and the rows are not looked at: the journal says what these are. Nor are the notes
    of groups, which nothing else can tell.
    """
    notices = []
    tests = _tests(files)
    has_rows = partial(_has_rows, known=True)
    for path in files.beside():
        if path == files.groups:
            continue
        if path.is_file() and path.stat().st_size and not tests.get(path, has_rows)(path):
            aside = _free_name(path)
            path.replace(aside)
            notices.append(f"{path} can't be read. It was renamed to {aside.name} and is rebuilt")
    return notices


def _free_name(path: Path) -> Path:
    """A name for a damaged file that no other has."""
    first = f"{path.name}.damaged"
    names = chain((first,), (f"{first}.{number}" for number in count(2)))
    return next(one for one in map(path.with_name, names) if not os.path.lexists(one))


def _tests(files: OutputFiles) -> dict[Path, Callable[[Path], bool]]:
    """By file, what says whether it is a run's; others have rows."""
    begins = {
        files.journal: HEADER,
        files.groups: _GROUPS,
        files.trace: _TRACE_BLOCK,
        files.log: _LOG,
        files.task_lines: _TASK_LINES,
        files.examples: _EXAMPLES,
        # A kill may have left half of a draft.
        draft_of(files.journal): HEADER,
        draft_of(files.summary): _SUMMARY,
        draft_of(files.skipped): _SKIPPED,
        draft_of(files.run): _SUMMARY,
        draft_of(files.task_lines): _TASK_LINES,
        draft_of(files.examples): _EXAMPLES,
    }
    tests: dict[Path, Callable[[Path], bool]] = {
        path: partial(_begins, begin=begin) for path, begin in begins.items()
    }
    tests |= {files.index: _is_index, files.run: _is_about_a_run, files.summary: _is_about_a_run}
    return tests


def _has_journal(files: OutputFiles) -> bool:
    """Whether there is a run's journal, or what explains a run whose journal is gone."""
    with contextlib.suppress(OSError):
        if _begins(files.journal, HEADER):
            return True
    with contextlib.suppress(OSError):
        if _begins(draft_of(files.journal), HEADER):
            return True
    with contextlib.suppress(OSError):
        return _is_about_a_run(files.run)
    return False


def _is_index(path: Path) -> bool:
    """Whether a file is an index."""
    with path.open("rb") as file:
        head = file.read(72)
    return head.startswith(INDEX_BEGIN) and head[68:] == APPLICATION_ID.to_bytes(4)


def _begins(path: Path, begin: bytes) -> bool:
    """Whether a file begins so, or is so short that it may have been going to."""
    with path.open("rb") as file:
        found = file.read(len(begin))
    return bool(found) and begin.startswith(found)


def _has_rows(path: Path, known: bool) -> bool:
    """Whether rows of a run are in it. Where there is a journal, the first may be torn."""
    if ".jsonl.zst" in path.name:
        return known and _begins(path, FRAME_START)  # only the journal says whose they are
    row = first_object(path)
    if row is None:
        return known
    return _is_text(row, "task_id", "rollout_id") or set(row) == {"line", "key", "problem"}


def _is_about_a_run(path: Path) -> bool:
    try:
        document = loads(path.read_bytes())
    except CodecError:
        return False
    return type(document) is dict and _is_text(document, "run_id")


def _is_text(row: dict[str, Any], *keys: str) -> bool:
    return all(type(row.get(key)) is str for key in keys)
