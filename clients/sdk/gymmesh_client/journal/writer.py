"""Group commit: many appends share one commit, made in a thread beside the event loop.

An append waits until its commit is on disk. The first of a group waits `delay_s` for others to
come, and while a commit is being written the next group gathers, so the slower the disk, the
larger the groups. Commits begin at least `delay_s` apart: one costs as much CPU as recording
dozens of rollouts, whatever is in it.

`output` appends; `journal` commits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from gymmesh_client.journal import metrics
from gymmesh_client.journal.journal import Journal, LogEntry, NewOutcome
from gymmesh_client.log_records import Record

COMMIT_DELAY_S: Final = 0.05


class JournalWriter:
    """Appends to a journal from an event loop; nothing else may use the journal until `close`. An
    append waits at most `delay_s` for others to share its commit.
    """

    def __init__(self, journal: Journal, *, delay_s: float = COMMIT_DELAY_S) -> None:
        self._journal = journal
        self._delay_s = delay_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._entries: list[LogEntry] = []  # of the group that gathers
        self._waiting: list[asyncio.Future[None]] = []
        self._claimed: set[bytes] = set()  # rollouts whose outcomes are not on disk yet
        self._committing: asyncio.Task[None] | None = None  # while any group gathers
        self._closing = asyncio.Event()
        metrics.JOURNAL_COMMIT_SECONDS.labels()  # 0 from the start

    async def append(self, entry: LogEntry) -> None:
        """Commit an entry with its group; returns once it is on disk. When the caller is cancelled
        it is written all the same. Raises OutputError when it cannot be, and nothing more will be;
        ValueError where the rollout has a current outcome already.
        """
        if self._closing.is_set():
            raise ValueError("the journal is closed")
        if isinstance(entry, NewOutcome):
            # Refused here, before it spoils the commit of others.
            if entry.key in self._claimed or self._journal.state.status(entry.key):
                raise ValueError("the rollout already has an outcome")
            self._claimed.add(entry.key)
        on_disk = asyncio.get_running_loop().create_future()
        self._entries.append(entry)
        self._waiting.append(on_disk)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_groups())
        await on_disk

    def submit(self, records: Sequence[Record]) -> Future[None]:
        """Commit records at once; the result is there, or an OutputError, when that is done."""
        return self._thread.submit(self._journal.commit, records)

    async def close(self) -> None:
        """Commit what is waiting, and end the thread. Idempotent."""
        self._closing.set()
        if self._committing is not None:
            await asyncio.shield(self._committing)
        await asyncio.to_thread(self._thread.shutdown)

    async def _commit_groups(self) -> None:
        """Commit one group after another until nothing waits."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._delay_s
        while self._entries:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._closing.wait()
            began = loop.time()
            due = began + self._delay_s
            entries, self._entries = self._entries, []
            waiting, self._waiting = self._waiting, []
            commit = loop.run_in_executor(self._thread, self._journal.commit, entries)
            await asyncio.wait([commit])
            error = commit.exception()
            metrics.JOURNAL_COMMIT_SECONDS.labels().observe(loop.time() - began)
            outcomes = [one for one in entries if isinstance(one, NewOutcome)]
            self._claimed.difference_update([one.key for one in outcomes])
            for on_disk in waiting:
                if on_disk.done():
                    continue  # its caller was cancelled
                if error is None:
                    on_disk.set_result(None)
                else:
                    on_disk.set_exception(error)
        self._committing = None
