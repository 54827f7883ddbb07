"""The files of a run, all named after its rows. Pure.

rollouts.jsonl             completed rollouts; with shards rollouts-00000.jsonl …; compressed
                           ones end in .zst
rollouts.failures.jsonl    failed rollouts
rollouts.superseded.jsonl  rows that are not current, moved here from the files above by a
                           compaction
rollouts.journal           which outcomes are current, and where their rows are
rollouts.index             attempts in SQLite, derived from all of the above
rollouts.groups            which groups trainers have received, if groups are sent to a trainer
rollouts.trace             every event of every attempt, if requested
rollouts.errors.log        errors, each traceback once; exists only if there was an error
rollouts.summary.json      the figures of the run's last session
rollouts.skipped.jsonl     skipped rows of the task file, if requested
rollouts.run.json          describes the run: configuration, versions, times, hosts, counts
rollouts.tasks             the task file's lines as digests, to find changes
rollouts.examples.jsonl    the tasks, if they are an environment's own examples
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_client.log_records import FAILURES, ROWS
from gymmesh_client.safe_writes import draft_of

_ZSTD: Final = ".zst"
_DIGITS: Final = 5


class _Beside:
    """A file of a run, named after its rows."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix

    def __get__(self, files: OutputFiles, _: type[OutputFiles]) -> Path:
        return files.rows.with_name(files.stem + self._suffix)


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """The files of a run; this module's docstring describes their content.

    Attributes:
        rows: the output as the user named it. A name that ends in `.zst` means compressed rows.
        shard_rows: rows per file of rows; None: one file.
        zstd: whether rows are compressed.
    """

    rows: Path
    shard_rows: int | None = None
    zstd: bool = False

    failures = _Beside(".failures.jsonl")
    superseded = _Beside(".superseded.jsonl")
    journal = _Beside(".journal")
    index = _Beside(".index")
    groups = _Beside(".groups")
    trace = _Beside(".trace")
    log = _Beside(".errors.log")
    summary = _Beside(".summary.json")
    skipped = _Beside(".skipped.jsonl")
    run = _Beside(".run.json")
    task_lines = _Beside(".tasks")
    examples = _Beside(".examples.jsonl")

    def of_session(self, session: Mapping[str, Any]) -> OutputFiles:
        """The same run's files, laid out as its journal says."""
        return OutputFiles(self.rows, session.get("shard_rows"), bool(session.get("zstd")))

    @property
    def stem(self) -> str:
        """What all the names begin with."""
        return self.rows.name.removesuffix(_ZSTD).removesuffix(".jsonl")

    @property
    def compressed(self) -> bool:
        """Whether rows are compressed."""
        return self.zstd or self.rows.name.endswith(_ZSTD)

    def shard(self, number: int) -> Path:
        """A file of rows."""
        end = _ZSTD if self.compressed else ""
        if self.shard_rows is not None:
            return self.rows.with_name(f"{self.stem}-{number:0{_DIGITS}d}.jsonl{end}")
        return self.rows.with_name(self.rows.name.removesuffix(_ZSTD) + end)

    @property
    def shown(self) -> str:
        """The rows' file for people, or what all their files are called."""
        first = self.shard(0)
        if self.shard_rows is None:
            return str(first)
        return str(first.with_name(first.name.replace("0" * _DIGITS, "*", 1)))

    def row_file(self, kind: int, shard: int) -> Path:
        """The file that a place names."""
        if kind == ROWS:
            return self.shard(shard)
        return self.failures if kind == FAILURES else self.superseded

    def compaction_draft(self, kind: int, shard: int, number: int) -> Path:
        """Where a row file is written without its superseded rows, before it takes its place."""
        return draft_of(self.row_file(kind, shard), str(number))

    def compaction_drafts(self) -> list[Path]:
        """The drafts that compactions left; one is needed only if the journal names it."""
        own = [*self.all_shards(), self.failures]
        names = [re.compile(re.escape(path.name) + r"\.\d+\.tmp") for path in own]
        found = self._in_folder()
        return sorted(path for path in found if any(one.fullmatch(path.name) for one in names))

    def all_shards(self) -> list[Path]:
        """The files of rows that are there, however they are laid out.

        Numbered ones are another run's unless this one is sharded or has a journal.
        """
        found = {self.rows, self.rows.with_name(self.rows.name + _ZSTD)}
        if self.shard_rows is not None or self.journal.exists():
            found.update(self._numbered(f"(?:{re.escape(_ZSTD)})?"))
        return sorted(path for path in found if path.exists())

    def shard_numbers(self) -> list[int]:
        """The numbers of the files of rows that are there; none without shards."""
        if self.shard_rows is None:
            return []
        return sorted(self._numbered(re.escape(_ZSTD) if self.compressed else "").values())

    def beside(self) -> list[Path]:
        """The files that explain the rows and the journal, there or not, and all drafts but
        compactions'.
        """
        whole = [self.summary, self.skipped, self.run, self.task_lines, self.examples]
        return [
            self.index,
            self.groups,
            self.trace,
            self.log,
            *whole,
            *map(draft_of, (self.journal, *whole)),
        ]

    def everything(self) -> list[Path]:
        """Every file that a run of this name may write, replace or remove, there or not."""
        rows = dict.fromkeys([self.shard(0), *self.all_shards(), self.failures, self.superseded])
        return [*rows, self.journal, *self.beside(), *self.compaction_drafts()]

    def leftovers(self) -> list[Path]:
        """The existing files of the journal, which are deleted with it."""
        own = [self.failures, self.superseded, self.index, self.groups, self.trace, self.skipped]
        return [*self.all_shards(), *own, self.run, self.task_lines, *self.compaction_drafts()]

    def _numbered(self, end: str) -> dict[Path, int]:
        """The numbered files of rows that are there, whose names end so (a pattern)."""
        name = re.compile(re.escape(self.stem) + rf"-(\d{{{_DIGITS},}})\.jsonl{end}", re.ASCII)
        found = ((path, name.fullmatch(path.name)) for path in self._in_folder())
        return {path: int(match[1]) for path, match in found if match}

    def _in_folder(self) -> list[Path]:
        folder = self.rows.parent
        return list(folder.iterdir()) if folder.is_dir() else []
