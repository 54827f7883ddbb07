"""Group commit: many appends, one commit, in a thread beside the event loop.

An append waits until its commit is on disk. The first of a group waits `delay_s` for others to
come, and while a commit is being written the next group gathers, so the slower the disk, the
larger the groups. Commits begin at least `delay_s` apart: one costs as much CPU as recording
dozens of rollouts, whatever is in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final

from gymmesh_client.journal.disk import OutputError
from gymmesh_client.journal.records import Record
from gymmesh_client.journal.store import Entry, Journal, NewOutcome, Replace
from gymmesh_runtime import metrics

COMMIT_DELAY_S: Final = 0.05

Done = Callable[[BaseException | None], None]
"""Told that an entry is on disk, or why it is not. Raises nothing."""

_Batch = tuple[Sequence[Entry], Done]


async def waited(put: Callable[[Done], None]) -> None:
    """Call something that takes a `Done`, and wait until it is told; raises what it is told."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    put(done)
    await future


class Ticket:
    """A commit that was asked for without waiting for it."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None

    def wait(self) -> None:
        """Return when the commit is on disk. Raises OutputError when it could not be made."""
        self._done.wait()
        if self._error is not None:
            raise self._error

    def settle(self, error: BaseException | None) -> None:
        """The commit is on disk, or failed."""
        self._error = error
        self._done.set()


class GroupWriter:
    """Appends to a journal from an event loop. The journal is its own from now on.

    Args:
        delay_s: the most that an append waits for others to share its commit.
    """

    def __init__(self, journal: Journal, *, delay_s: float = COMMIT_DELAY_S) -> None:
        self._journal = journal
        self._delay_s = delay_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._entries: list[Entry] = []
        self._waiting: list[Done] = []
        self._claimed: list[bytes] = []  # the rollouts whose outcomes are among the entries
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._began = 0.0  # when the last group was handed over, in the loop's seconds
        self._closed = False
        self._unsettled: set[bytes] = set()

    def put(self, entry: Entry, done: Done) -> None:
        """Commit an entry with its group; `done` is called once it is on disk, or with an
        OutputError when it could not be written, and then nothing more will be.

        Raises:
            ValueError: the rollout has a current outcome already.
        """
        if self._closed:
            raise ValueError("the journal is closed")
        self._claim(entry)
        loop = self._loop or self._start()
        self._entries.append(entry)
        self._waiting.append(done)
        if self._timer is None and not self._writing:
            self._timer = loop.call_later(self._delay_s, self._hand_over)

    async def append(self, entry: Entry) -> None:
        """As `put`, to be waited for.

        When the caller is cancelled the entry is written all the same.

        Raises:
            OutputError: it could not be written; nothing more will be.
            ValueError: the rollout has a current outcome already.
        """
        await waited(partial(self.put, entry))

    def submit(self, records: Sequence[Record]) -> Ticket:
        """Commit records at once, without waiting for it; from the loop's thread."""
        self._start_thread()
        ticket = Ticket()
        self._queue.put((records, ticket.settle))
        return ticket

    async def close(self) -> None:
        """Commit what is waiting, and let the thread end. Idempotent."""
        self._closed = True
        if self._entries:
            self._hand_over()
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _claim(self, entry: Entry) -> None:
        """Refuse a second outcome before it spoils the commit of others."""
        if isinstance(entry, NewOutcome):
            key = entry.key
            if key in self._unsettled or self._journal.state.status(key):
                raise ValueError("the rollout has an outcome already")
        elif isinstance(entry, Replace):
            key = entry.old.key
            if key in self._unsettled or self._journal.state.status(key) != entry.old.status:
                raise ValueError("the outcome to replace is not current")
        else:
            return
        self._unsettled.add(key)
        self._claimed.append(key)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        self._start_thread()
        return self._loop

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = self._loop
        assert loop is not None
        self._writing, self._began = True, loop.time()
        entries, self._entries = self._entries, []
        waiting, self._waiting = self._waiting, []
        claimed, self._claimed = self._claimed, []

        def done(error: BaseException | None) -> None:
            loop.call_soon_threadsafe(self._committed, claimed, waiting, error)

        self._queue.put((entries, done))

    def _committed(
        self,
        claimed: list[bytes],
        waiting: list[Done],
        error: BaseException | None,
    ) -> None:
        self._writing = False
        if self._loop is not None:
            metrics.JOURNAL_COMMIT_SECONDS.labels().observe(self._loop.time() - self._began)
        if self._entries and not self._closed:
            loop = self._loop
            assert loop is not None
            # They have waited while the disk was busy.
            due = max(loop.time(), self._began + self._delay_s)
            self._timer = loop.call_at(due, self._hand_over)
        self._unsettled.difference_update(claimed)
        for done in waiting:
            done(error)

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            entries, done = batch
            error: BaseException | None = None
            try:
                self._journal.commit(entries)
            except OutputError as failure:
                error = failure
            except Exception as failure:  # a fault of ours: whoever waits must hear of it
                error = failure
            done(error)
