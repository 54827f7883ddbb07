"""A run's output: what is done already, and where outcomes are written.

`RunOutput.open` opens it (`opening`, by `options`); the collector then reserves attempts, writes
outcomes and closes it. See gymmesh_client.journal for how it stays whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeVar

from gymmesh_client.index import open_index
from gymmesh_client.journal import JournalWriter, NewOutcome
from gymmesh_client.log_records import (
    COMPLETED,
    FAILED,
    AttemptFailed,
    Released,
    Reserved,
    RunEnded,
)
from gymmesh_client.output.compaction import compact
from gymmesh_client.output.opening import OnRow, Opened, opened_output
from gymmesh_client.output.options import OpenOptions
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.rollout_ids import rollout_id, rollout_ids, rollout_key
from gymmesh_client.run_file import RunIdentity, write_document
from gymmesh_client.tasks import shard_of
from gymmesh_client.traces import AttemptRecording, TraceWriter
from gymmesh_runtime.timers import to_its_end

J = TypeVar("J")

_BLOCK: Final = 256


class RunOutput:
    """Where a run's outcomes are written; used by one collector, from one event loop. Get one from
    `open`.

    Methods that write return once the data is on disk. If their caller is cancelled, the write
    continues. They raise OutputError when the disk can't be written.

    Attributes:
        run_id: the run's id; it stays the same when the run is resumed.
        files: the run's files.
        shard: which part of the run this is; None: the whole run.
        retried: outcomes superseded by a requested retry.
        notices: notes for the user about a resumed run, one sentence each.
        not_retried: outcomes that the retry names but that stay, because their rollouts were not
            requested.
        traced: whether every event is kept.
        on_row: called with each row once it is on disk, and whether its rollout completed.
        closed: whether all data is written.
    """

    def __init__(self, opened: Opened, options: OpenOptions) -> None:
        journal = self._journal = opened.journal
        self.notices = opened.notices
        self.run_id = str(journal.state.session["run_id"])
        self.files = journal.files
        self.shard = shard_of(journal.state.session)
        self.retried = opened.retried.superseded
        self.not_retried = opened.retried.left
        self._traces = TraceWriter(journal.files.trace) if options.trace else None
        self._writer = JournalWriter(journal, delay_s=options.delay_s)
        self.traced = options.trace
        self.on_row: Callable[[bytes, bool], None] = lambda row, completed: None
        self.closed = False
        self._about = opened.about
        self._unsent: dict[bytes, int] = {}
        self._closed = False

    @classmethod
    def open(
        cls,
        files: OutputFiles,
        identity: RunIdentity,
        options: OpenOptions | None = None,
        *,
        on_row: OnRow = lambda row: None,
        on_failure: OnRow = lambda row: None,
    ) -> RunOutput:
        """Open a run's output and load its finished rollouts.

        Args:
            on_row: called with each completed row that is kept.
            on_failure: called with each failed row that is kept.

        Raises:
            UserError: as `check`; or a file to be kept is damaged.
            OutputError: the disk can't be written.
        """
        options = options or OpenOptions()
        opened = opened_output(files, identity, options, on_row, on_failure)
        try:
            return cls(opened, options)
        except BaseException:
            opened.journal.close()
            raise

    @property
    def outcomes(self) -> int:
        """How many rollouts have a current outcome on disk."""
        return sum(self._journal.state.counts.values())

    def rollout_id(self, task_id: str, repeat_index: int) -> str:
        """The id of a rollout of this run."""
        return rollout_id(self.run_id, task_id, repeat_index)

    def rollout_ids(self, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
        """The ids of several repeats of a task, in their order."""
        return rollout_ids(self.run_id, task_id, repeats)

    def has_outcome(self, task_id: str, repeat_index: int) -> bool:
        """Whether the rollout has a current outcome on disk, completed or failed."""
        return self.is_done(self.rollout_id(task_id, repeat_index))

    def has_completed(self, task_id: str, repeats: int) -> bool:
        """Whether any repeat of the task is completed on disk; there are so many, or were more."""
        state = self._journal.state
        most = max(repeats, int(state.session.get("repeats", 1)))
        names = self.rollout_ids(task_id, range(most))
        return any(state.status(rollout_key(name)) == COMPLETED for name in names)

    def is_done(self, rollout: str) -> bool:
        """As `has_outcome`, by the rollout's id."""
        return bool(self._journal.state.status(rollout_key(rollout)))

    def reserving(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str]
    ) -> Iterator[tuple[J, int]]:
        """Number the first attempt of each job, so that no number is ever used twice.

        The numbers are on disk before the jobs are yielded. They are reserved in blocks, one block
        ahead, so that the caller rarely waits for the disk.
        """
        block = self._block(jobs, rollout_of)
        while block is not None:
            numbered, reserved = block
            reserved.result()
            block = self._block(jobs, rollout_of)
            for job, (key, attempt) in numbered:
                self._unsent.pop(key, None)
                yield job, attempt

    async def completed(self, rollout: str, attempt: int, row: bytes) -> None:
        """Write a completed rollout's row, a line of JSON. Raises ValueError if the rollout already
        has an outcome.
        """
        await self._writer.append(NewOutcome(rollout_key(rollout), attempt, COMPLETED, 0, row))
        self.on_row(row, True)

    async def failed(self, rollout: str, attempt: int, boundary: int, row: bytes) -> None:
        """Write a failed rollout's row; as `completed`."""
        outcome = NewOutcome(rollout_key(rollout), attempt, FAILED, boundary, row)
        await self._writer.append(outcome)
        self.on_row(row, False)

    async def reserve(self, rollout: str, attempt: int) -> None:
        """Reserve the number of a further attempt; returns when the attempt may be sent."""
        await self._writer.append(Reserved(((rollout_key(rollout), attempt),)))

    async def tried(self, rollout: str, attempt: int, boundary: int) -> None:
        """Record that an attempt failed without being the rollout's outcome."""
        await self._writer.append(AttemptFailed(rollout_key(rollout), attempt, boundary))

    async def recording(self, rollout: str, attempt: int) -> AttemptRecording:
        """Where an attempt's events go, once the trace, which there must be, is not too far
        behind.
        """
        assert self._traces is not None
        await self._traces.room()
        return self._traces.record(rollout, attempt)

    def describe(self, **parts: Any) -> None:
        """Write more about the run to NAME.run.json, under these keys; see
        `gymmesh_client.run_file`. Values that are secret by name or form are omitted.
        """
        if not self._closed:
            self._about.say(**parts)
            write_document(self.files.run, self._about)

    async def close(self, *, seen: Mapping[str, Any] = MappingProxyType({}), **ended: Any) -> None:
        """Write what is waiting and how the run ended (JSON values), take superseded rows out of
        their files, and close. Idempotent. `seen`: more for NAME.run.json, as for `describe`. Who
        is cancelled meanwhile leaves no file open: another collector may begin right after.
        Raises UserError where a file from which a superseded row should go is damaged.
        """
        if self._closed:
            return
        self._closed = True
        await to_its_end(self._close(seen, ended))
        if not ended.get("interrupted"):
            await asyncio.to_thread(make_index, self.files)

    async def _close(self, seen: Mapping[str, Any], ended: dict[str, Any]) -> None:
        try:
            await self._writer.close()
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close)
            left = tuple(self._unsent.items())
            self._journal.commit([*([Released(left)] if left else []), RunEnded(ended)])
            self._about.say(**seen)
            self._about.end(ended)
            write_document(self.files.run, self._about)
            await asyncio.to_thread(compact, self._journal)
        finally:
            self._journal.close()
            self.closed = True

    def abandon(self) -> None:
        """Close an output to which nothing was written. Idempotent."""
        if not self._closed:
            self._closed = True
            self._journal.close()
            if self._traces is not None:
                self._traces.close()

    def _block(
        self, jobs: Iterator[J], rollout_of: Callable[[J], str]
    ) -> tuple[list[tuple[J, tuple[bytes, int]]], Future[None]] | None:
        block = list(islice(jobs, _BLOCK))
        if not block:
            return None
        used = self._journal.state.attempt
        keys = [rollout_key(rollout_of(job)) for job in block]
        numbered = tuple([(key, used(key) + 1) for key in keys])
        self._unsent.update(numbered)
        reserved = self._writer.submit([Reserved(numbered)])
        return list(zip(block, numbered, strict=True)), reserved


def make_index(files: OutputFiles) -> None:
    """Make it now, so that the first look-up need not wait."""
    with contextlib.suppress(OSError, UserError):  # a look-up makes it then, or says why not
        open_index(files).close()
