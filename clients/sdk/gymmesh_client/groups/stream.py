"""Hands finished groups out as they come: all of them to one reader, or shared by consumers
(`shared_stream`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, Literal

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.groups import metrics
from gymmesh_client.groups.group_log import GroupLog
from gymmesh_client.groups.share_records import GroupsDone, ShareRecord, SharingEnded
from gymmesh_client.groups.store import Group, GroupStore
from gymmesh_runtime.errors import MeshError, field_invalid

_LOG: Final = logging.getLogger("gymmesh.collect")
_ANNOUNCE: Final = "Announce each version to the model service (SetWeightsVersion)"
_COUNT_AS_STALE: Final = (
    "max_staleness: groups whose model reports no weights version are treated as stale and not "
    f"sent. {_ANNOUNCE}"
)
_NOT_APPLIED: Final = (
    f"max_staleness: no weights version is known yet, so groups of any age are sent. {_ANNOUNCE}"
)

# A reader that was sent everything may have left before it read it all: it comes back for the rest.
_COMES_BACK_S: Final = 5.0


ReaderKind = Literal["one reader", "consumers"]


class GroupStream:
    """Finished groups, for one kind of readers.

    Args:
        store: what keeps them.
        on_room: called when there may be room for new groups.
        log: where it is noted which groups trainers have; None: nowhere.
    """

    def __init__(
        self, store: GroupStore, on_room: Callable[[], None], log: GroupLog | None = None
    ) -> None:
        self.store = store
        self._log = log
        #: Who reads the groups, once the first stream has begun.
        self.readers: ReaderKind | None = None
        #: Called by `wake`, too.
        self.on_wake: Callable[[], None] = lambda: None
        #: Whether the last reader was sent everything, after the last group came.
        self.delivered = False
        self._on_room = on_room
        self._said = set[str]()
        self._changed = asyncio.Event()

    def add(self, task_id: str, rollout: pb.Rollout) -> None:
        """Take a rollout of a task whose outcome is on disk."""
        if self.store.ended(task_id, rollout):
            metrics.GROUPS.labels("finished").inc()
            self.wake()

    def drop(self, task_id: str) -> None:
        """Never hand out the group of this task."""
        self.store.drop(task_id)
        self.note([GroupsDone([task_id])])

    def note(self, records: Iterable[ShareRecord]) -> None:
        """Note records. They are on disk once `saved` returns."""
        if self._log is not None:
            self._log.note(records)

    def end_sharing(self) -> None:
        """The consumers know that the run is over. Those of a later session begin anew."""
        if self.readers == "consumers" and not self.store.unacknowledged:
            self.note([SharingEnded()])

    async def saved(self) -> None:
        """Return once all noted records are on disk. Raises OutputError."""
        if self._log is not None:
            await self._log.saved()

    def refuse_others(self, readers: ReaderKind) -> None:
        """Raises RUN_STATE if the groups are read by the other kind of readers."""
        if self.readers not in (None, readers):
            raise MeshError(
                errors_pb2.ERROR_REASON_RUN_STATE,
                f"the groups of this run are already read by {self.readers}, so {readers} can't "
                "read these groups. Give all readers a consumer name, or use one reader without "
                "a name",
            )

    def check_cursor(self, field: str, cursor: int) -> None:
        """Raises FIELD_INVALID for a cursor that this session did not issue."""
        if cursor > self.store.finished:
            raise field_invalid(
                field,
                f"{cursor} is not a cursor of this session (the last cursor is "
                f"{self.store.finished}). Start at 0 after a restart of the collector",
            )

    async def groups(self, after: int, max_staleness: int | None) -> AsyncGenerator[Group, None]:
        """The groups after a cursor, which acknowledges all up to it; ends with the run.

        Raises:
            MeshError: FIELD_INVALID; the cursor is none of this session's. RUN_STATE; consumers
                share the groups.
        """
        self.refuse_others("one reader")
        self.check_cursor("after_cursor", after)
        store = self.store
        self.readers = "one reader"
        self.delivered = False
        self.acknowledge(after)
        cursor = after
        while True:
            group = store.after(cursor)
            if group is None:
                if store.closed:
                    self.delivered = True
                    self.wake()
                    return
                await self._changed.wait()
                continue
            cursor = group.cursor
            if not self.too_old(group, max_staleness):
                await self.saved()  # what this reader acknowledged by asking
                yield group

    def too_old(self, group: Group, max_staleness: int | None) -> bool:
        """Whether a group is too old to be handed out. Such a group is counted and removed."""
        store = self.store
        if group.unknown_weights and max_staleness is not None:
            self._warn_once(_NOT_APPLIED if store.newest_weights is None else _COUNT_AS_STALE)
        if not store.is_stale(group, max_staleness):
            return False
        store.discard_stale(group)
        self.note([GroupsDone([group.task.task_id])])
        metrics.GROUPS.labels("stale").inc()
        self._on_room()
        return True

    def acknowledge(self, cursor: int) -> None:
        """Remove all groups up to a cursor: the trainer acknowledged them."""
        before = self.store.unacknowledged
        if tasks := self.store.acknowledge(cursor):
            self.note([GroupsDone(tasks)])
        self._acknowledged(before)

    def release(self, numbers: Iterable[int]) -> None:
        """Remove these groups: a consumer acknowledged them."""
        before = self.store.unacknowledged
        for number in numbers:
            self.store.release(number)
        self._acknowledged(before)

    def _acknowledged(self, before: int) -> None:
        metrics.GROUPS.labels("acknowledged").inc(before - self.store.unacknowledged)
        self.wake()
        self._on_room()

    def wake(self) -> None:
        """Wake all readers: a group was added or removed, or no more groups will follow."""
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_wake()

    def close(self) -> None:
        """No more groups will follow."""
        self.store.closed = True
        self.wake()

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            _LOG.warning("%s", sentence)

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until a trainer has all groups. Returns False if the time is over first.

        It has those that it acknowledged, and all when they were sent to a reader that does not
        come back for any.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.store.unacknowledged:
                    patience = asyncio.timeout(_COMES_BACK_S if self.delivered else None)
                    try:
                        async with patience:
                            await self._changed.wait()
                    except TimeoutError:
                        if not patience.expired():
                            raise
                        break
        except TimeoutError:
            return False
        return True
