"""The files of a run, all named after its rows. Pure.

rollouts.jsonl             completed rollouts; with shards rollouts-00000.jsonl …; compressed
                           ones end in .zst
rollouts.failures.jsonl    rollouts given up
rollouts.superseded.jsonl  rows that a compaction took out of these: no longer current
rollouts.journal           which outcomes are current, and where their rows are
rollouts.index             attempts in SQLite, derived from all of the above
rollouts.trace             every event of every attempt, when asked for
rollouts.errors.log        what went wrong, each traceback once; there only when something did
rollouts.summary.json      the figures of the run's last session
rollouts.skipped.jsonl     the task file's rows that were left out, when asked for
rollouts.run.json          the run explains itself: configuration, versions, times, hosts, counts
rollouts.tasks             the task file's lines as digests, by which a change is found
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_client.journal.format.records import FAILURES, ROWS
from gymmesh_client.replacing import draft_of

_ZSTD: Final = ".zst"
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Where a run writes.

    Attributes:
        rows: the output as the user named it; with a name that ends in `.zst` it is compressed.
        shard_rows: rows per file of rows; None: one file.
        zstd: whether rows are compressed.
    """

    rows: Path
    shard_rows: int | None = None
    zstd: bool = False

    def of_session(self, session: Mapping[str, Any]) -> OutputFiles:
        """The same run's files, laid out as its journal says."""
        return OutputFiles(self.rows, session.get("shard_rows"), bool(session.get("zstd")))

    @property
    def failures(self) -> Path:
        """The failed rollouts' rows."""
        return self._named(".failures.jsonl")

    @property
    def superseded(self) -> Path:
        """Rows that are no longer current."""
        return self._named(".superseded.jsonl")

    @property
    def journal(self) -> Path:
        """Which outcomes are current, and where their rows are."""
        return self._named(".journal")

    @property
    def index(self) -> Path:
        """Attempts in SQLite, derived from the journal and the rows."""
        return self._named(".index")

    @property
    def trace(self) -> Path:
        """Every event of every attempt."""
        return self._named(".trace")

    @property
    def log(self) -> Path:
        """What went wrong, for people."""
        return self._named(".errors.log")

    @property
    def summary(self) -> Path:
        """The figures of the run's last session."""
        return self._named(".summary.json")

    @property
    def skipped(self) -> Path:
        """The task file's rows that were left out, and why."""
        return self._named(".skipped.jsonl")

    @property
    def run(self) -> Path:
        """What the run is and was made with; of a run that was written before there was a journal,
        its identity.
        """
        return self._named(".run.json")

    @property
    def task_lines(self) -> Path:
        """The task file's lines as digests."""
        return self._named(".tasks")

    @property
    def compressed(self) -> bool:
        """Whether rows are compressed."""
        return self.zstd or self.rows.name.endswith(_ZSTD)

    def shard(self, number: int) -> Path:
        """A file of rows."""
        if self.shard_rows is not None:
            return self._named(f"-{number:0{_DIGITS}d}.jsonl{_ZSTD if self.compressed else ''}")
        if self.compressed and not self.rows.name.endswith(_ZSTD):
            return self.rows.with_name(self.rows.name + _ZSTD)
        return self.rows

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
        if not self.rows.parent.is_dir():
            return []
        return sorted(
            path
            for path in self.rows.parent.iterdir()
            if any(name.fullmatch(path.name) for name in names)
        )

    def all_shards(self) -> list[Path]:
        """The files of rows that are there, however they are laid out.

        Numbered ones are another run's unless this one is sharded or has a journal.
        """
        found = {self.rows, self.rows.with_name(self.rows.name + _ZSTD)}
        if self.shard_rows is not None or self.journal.exists():
            for suffix in (".jsonl", f".jsonl{_ZSTD}"):
                found |= {path for path, _ in self._numbered(suffix)}
        return sorted(path for path in found if path.exists())

    def everything(self) -> list[Path]:
        """Every file that a run of this name may write, replace or remove, there or not."""
        own = [self.failures, self.superseded, self.journal, self.index, self.trace]
        own += [self.summary, self.skipped, self.log, self.run, self.task_lines]
        written_whole = (self.journal, self.summary, self.skipped, self.run, self.task_lines)
        drafts = [draft_of(path) for path in written_whole]
        drafts += self.compaction_drafts()
        return [*{self.shard(0): None, **dict.fromkeys(self.all_shards())}, *own, *drafts]

    def shard_numbers(self) -> list[int]:
        """The numbers of the files of rows that are there; none without shards."""
        if self.shard_rows is None:
            return []
        suffix = f".jsonl{_ZSTD}" if self.compressed else ".jsonl"
        return sorted(number for _, number in self._numbered(suffix))

    def _numbered(self, suffix: str) -> list[tuple[Path, int]]:
        found: list[tuple[Path, int]] = []
        if not self.rows.parent.is_dir():
            return found
        for path in self.rows.parent.iterdir():
            name = path.name
            if name.startswith(f"{self.stem}-") and name.endswith(suffix):
                number = name[len(self.stem) + 1 : -len(suffix)]
                if number.isdecimal() and len(number) >= _DIGITS:
                    found.append((path, int(number)))
        return found

    @property
    def stem(self) -> str:
        """What all the names begin with."""
        return self.rows.name.removesuffix(_ZSTD).removesuffix(".jsonl")

    def _named(self, suffix: str) -> Path:
        return self.rows.with_name(self.stem + suffix)
