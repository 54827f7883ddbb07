"""The shown runs and files, found from the paths that were given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gymmesh_client import OutputFiles, UserError
from gymmesh_client.log import first_session
from gymmesh_client.problems import unreadable
from gymmesh_client.row_files import placed_rows
from gymmesh_data.rollout import rollout_of_line
from gymmesh_data.sources import say_unverified
from gymmesh_responses import CodecError, loads
from gymmesh_view.rows.summary import clean

_JOURNAL: Final = ".journal"
_FILES: Final = (".jsonl", ".jsonl.zst")
# As much of a file is read to find out whether it has rollouts.
_LOOKED_AT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ViewSource:
    """One run, or one file of rows.

    Attributes:
        path: the rows of a run, as `--output` named them, or the file.
        run: the files of the run; None for a file without a journal.
    """

    path: Path
    run: OutputFiles | None


@dataclass(slots=True)
class Found:
    """The runs and files to show, and the files of folders that have no rollouts."""

    sources: list[ViewSource] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)

    def add(self, source: ViewSource) -> None:
        """Show a source, once."""
        if source not in self.sources:
            self.sources.append(source)


def find_sources(paths: Iterable[Path]) -> Found:
    """The runs and files at some paths. A folder means all runs and files in it.

    Raises:
        UserError: a path does not exist, or has rows and none of them is a rollout's.
    """
    found = Found()
    for path in paths:
        absolute = path.absolute()
        if absolute.is_dir():
            _in_folder(absolute, found)
        elif OutputFiles(absolute).journal.exists():
            found.add(_run(absolute))
        elif absolute.exists():
            _refuse_other_rows(absolute, path)
            found.add(_file(absolute))
        else:
            raise UserError(
                f"{path} does not exist. Pass the --output of a run, a file of rows or a folder"
            )
    if not found.sources:
        named = ", ".join(map(str, paths)) or "nothing"
        raise UserError(
            f"{named} has no rollouts. Pass the --output of gym-cli collect, or a folder with "
            "such a file"
        )
    return found


def labels(paths: Sequence[Path]) -> list[str]:
    """The names of some runs and files: the path of each, from the folder that contains all."""
    if not paths:
        return []
    common = os.path.commonpath([path.parent for path in paths])
    return [clean(path.relative_to(common).as_posix()) for path in paths]


def _run(path: Path) -> ViewSource:
    files = OutputFiles(path)
    return ViewSource(path, files.of_session(first_session(files)))


def _file(path: Path) -> ViewSource:
    say_unverified(path)
    return ViewSource(path, None)


def _in_folder(folder: Path, found: Found) -> None:
    taken: set[Path] = set()
    for journal in _visible(folder, _JOURNAL):
        source = _run(_rows_of(journal))
        found.add(source)
        if source.run is not None:
            taken.update(source.run.everything())
    for suffix in _FILES:
        for path in _visible(folder, suffix):
            if path in taken:
                continue
            if _has_rollouts(path):
                found.add(_file(path))
            else:
                found.others.append(path)


def _visible(folder: Path, suffix: str) -> Iterator[Path]:
    """The files below a folder whose name ends so; hidden folders are left alone."""
    for path in sorted(folder.rglob(f"*{suffix}")):
        within = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in within):
            yield path


def _rows_of(journal: Path) -> Path:
    """The rows that a journal is of, as `--output` named them."""
    stem = journal.name.removesuffix(_JOURNAL)
    for suffix in (".jsonl", ".jsonl.zst", ".zst", ""):
        path = journal.with_name(stem + suffix)
        if path.is_file():
            return path
    return journal.with_name(f"{stem}.jsonl")


def _has_rollouts(path: Path) -> bool:
    """Whether the first row of a file is a rollout's."""
    try:
        return next((_is_rollout(line) for line in _first_lines(path)), False)
    except (OSError, UserError):
        return False


def _refuse_other_rows(path: Path, name: Path) -> None:
    """Refuse a file whose rows are not rollouts', such as a file of tasks; one without rows may
    still get them. Raises UserError, for its first row.
    """
    first = None
    try:
        for line in _first_lines(path):
            if _is_rollout(line):
                return
            first = line if first is None else first
    except OSError as error:
        raise unreadable(name, error) from None
    if first is not None:
        rollout_of_line(first, f"{name}:1")


def _first_lines(path: Path) -> Iterator[bytes]:
    """The lines at the beginning of a file. Raises OSError and UserError."""
    with path.open("rb") as file:
        compressed = path.name.endswith(".zst")
        for placed in placed_rows(path, file.fileno(), 0, _LOOKED_AT, compressed=compressed):
            yield placed.line


def _is_rollout(line: bytes) -> bool:
    try:
        row = loads(line)
    except CodecError:
        return False
    return isinstance(row, dict) and isinstance(row.get("response"), dict)
