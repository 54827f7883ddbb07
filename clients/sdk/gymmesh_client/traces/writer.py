"""Writes traces off the event loop, with a bounded backlog."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.disk import Disk, OutputError, cannot_write
from gymmesh_client.log import mapped
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.row_files import load_zstandard
from gymmesh_client.traces.blocks import Piece, encode_block, encode_events, scan_blocks

_BLOCK_BYTES: Final = 256 * 1024
_BLOCK_S: Final = 1.0
_SYNC_S: Final = 5.0
_LEVEL: Final = 3
BACKLOG: Final = 512


_EndedAttempt: TypeAlias = tuple[bytes, int, list[pb.RolloutEvent]]  # its key, number and events


@dataclass(slots=True, eq=False)
class AttemptRecording:
    """The events of one attempt while it goes; nothing of it is written before `end`."""

    _writer: TraceWriter
    _rollout: str
    _attempt: int
    _events: list[pb.RolloutEvent] = field(default_factory=list)

    def add(self, event: pb.RolloutEvent) -> None:
        """Keep an event, which is not changed."""
        self._events.append(event)

    def end(self) -> None:
        """The attempt ended, however it did. Once."""
        if self._events:
            self._writer.put(self._rollout, self._attempt, self._events)


class TraceWriter:
    """Appends attempts to a trace, which is made if it is not there.

    A thread serialises, compresses and writes. Blocks are synced to disk every few seconds and
    at the close, so after a power cut the last ones may be missing; a torn one is cut off when
    the trace is opened again. Traces are never waited for by outcomes. Raises OutputError when
    the file cannot be written.
    """

    def __init__(self, path: Path, disk: Disk | None = None, *, backlog: int = BACKLOG) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._backlog = backlog
        self._compress = load_zstandard().ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self._queue: SimpleQueue[_EndedAttempt | None] = SimpleQueue()
        self._error: OutputError | None = None
        self._room = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0
        self._lock = threading.Lock()
        try:
            self._fd = self._disk.open(path)
            self._end = _repair(self._fd, self._disk)
            self._disk.sync_folder(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from None
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def record(self, rollout: str, attempt: int) -> AttemptRecording:
        """Begin with an attempt."""
        return AttemptRecording(self, rollout, attempt)

    def put(self, rollout: str, attempt: int, events: list[pb.RolloutEvent]) -> None:
        """Hand over an attempt's events; never waits."""
        with self._lock:
            self._waiting += 1
        self._queue.put((rollout_key(rollout), attempt, events))

    async def room(self) -> None:
        """Wait until the backlog is short enough for another attempt to begin. Raises OutputError
        when the trace can no longer be written.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._waiting < self._backlog:
                return
            self._loop = asyncio.get_running_loop()
            self._room.clear()
            # The thread may have caught up just now, and would not say so again.
            if self._waiting >= self._backlog and self._error is None:
                await self._room.wait()

    def close(self) -> None:
        """Write what is waiting, and close; blocks meanwhile. Idempotent. Raises OutputError."""
        if self._fd < 0:
            return
        self._queue.put(None)
        self._thread.join()
        os.close(self._fd)
        self._fd = -1
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        synced, going = time.monotonic(), True
        while going:
            pieces, group, going = self._next_group()
            try:
                if group and self._error is None:
                    self._write(pieces, group)
                if not going or time.monotonic() - synced > _SYNC_S:
                    self._disk.sync(self._fd)
                    synced = time.monotonic()
            except OSError as error:
                self._error = cannot_write(self._path, error)
            with self._lock:
                self._waiting -= len(group)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._room.set)

    def _next_group(self) -> tuple[list[Piece], list[bytes], bool]:
        """Attempts for one block, and their events; and whether more may come."""
        pieces: list[Piece] = []
        group: list[bytes] = []
        size, until = 0, time.monotonic() + _BLOCK_S
        while size < _BLOCK_BYTES:
            try:
                ended = self._queue.get(timeout=max(until - time.monotonic(), 0.001))
            except Empty:
                break
            if ended is None:
                return pieces, group, False
            key, attempt, events = ended
            data = encode_events(events)
            pieces.append(Piece(key, attempt, size, len(data)))
            group.append(data)
            size += len(data)
        return pieces, group, True

    def _write(self, pieces: list[Piece], group: list[bytes]) -> None:
        frame: bytes = self._compress(b"".join(group))
        block = encode_block(pieces, frame)
        self._disk.write(self._fd, block, self._end)
        self._end += len(block)


def _repair(fd: int, disk: Disk) -> int:
    """Cut a torn block off; where the last whole one ends."""
    end = 0
    with mapped(fd) as data:
        for block in scan_blocks(data):
            end = block.end
        torn = len(data) > end
    if torn:
        disk.cut(fd, end)
    return end
