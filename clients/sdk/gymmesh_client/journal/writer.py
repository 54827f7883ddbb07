"""Group commit: many appends share one commit, made in a thread beside the event loop.

An append waits until its commit is on disk. The first of a group waits `delay_s` for others to
come, and while a commit is being written the next group gathers, so the slower the disk, the
larger the groups. Commits begin at least `delay_s` apart: one costs as much CPU as recording
dozens of rollouts, whatever is in it.

`output` appends; `journal` commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from gymmesh_client.journal.format.records import Record
from gymmesh_client.journal.journal import Journal, LogEntry, NewOutcome
from gymmesh_runtime import metrics

COMMIT_DELAY_S: Final = 0.05


class JournalWriter:
    """Appends to a journal from an event loop; nothing else may use the journal until `close`.

    Args:
        delay_s: the most that an append waits for others to share its commit.
    """

    def __init__(self, journal: Journal, *, delay_s: float = COMMIT_DELAY_S) -> None:
        self._journal = journal
        self._delay_s = delay_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._entries: list[LogEntry] = []  # of the group that gathers
        self._waiting: list[asyncio.Future[None]] = []
        self._claimed: set[bytes] = set()  # rollouts whose outcomes are not on disk yet
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._began = 0.0  # when the last group was handed over, in the loop's seconds
        self._closed = False

    async def append(self, entry: LogEntry) -> None:
        """Commit an entry with its group; returns once it is on disk.

        When the caller is cancelled the entry is written all the same.

        Raises:
            OutputError: it could not be written; nothing more will be.
            ValueError: the rollout has a current outcome already.
        """
        if self._closed:
            raise ValueError("the journal is closed")
        if isinstance(entry, NewOutcome):
            # Refused here, before it spoils the commit of others.
            if entry.key in self._claimed or self._journal.state.status(entry.key):
                raise ValueError("the rollout has an outcome already")
            self._claimed.add(entry.key)
        loop = asyncio.get_running_loop()
        on_disk = loop.create_future()
        self._entries.append(entry)
        self._waiting.append(on_disk)
        if self._timer is None and not self._writing:
            self._timer = loop.call_later(self._delay_s, self._hand_over, loop)
        await on_disk

    def submit(self, records: Sequence[Record]) -> Future[None]:
        """Commit records at once; the result is there, or an OutputError, when that is done."""
        return self._thread.submit(self._journal.commit, records)

    async def close(self) -> None:
        """Commit what is waiting, and end the thread. Idempotent."""
        self._closed = True
        if self._entries:
            self._hand_over(asyncio.get_running_loop())
        await asyncio.to_thread(self._thread.shutdown)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the thread commit the group."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writing, self._began = True, loop.time()
        entries, self._entries = self._entries, []
        waiting, self._waiting = self._waiting, []

        def committed(future: Future[None]) -> None:
            loop.call_soon_threadsafe(self._committed, loop, entries, waiting, future.exception())

        self._thread.submit(self._journal.commit, entries).add_done_callback(committed)

    def _committed(
        self,
        loop: asyncio.AbstractEventLoop,
        entries: Sequence[LogEntry],
        waiting: Sequence[asyncio.Future[None]],
        error: BaseException | None,
    ) -> None:
        self._writing = False
        metrics.JOURNAL_COMMIT_SECONDS.labels().observe(loop.time() - self._began)
        if self._entries and not self._closed:
            # They have waited while the disk was busy.
            due = max(loop.time(), self._began + self._delay_s)
            self._timer = loop.call_at(due, self._hand_over, loop)
        self._claimed.difference_update([one.key for one in entries if isinstance(one, NewOutcome)])
        for on_disk in waiting:
            if on_disk.done():
                continue  # its caller was cancelled
            if error is None:
                on_disk.set_result(None)
            else:
                on_disk.set_exception(error)
