"""Reading a trace: an attempt's events, or everything in it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError, unreadable
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.row_files import Zstd
from gymmesh_client.traces.blocks import Block, Piece, decode_events, scan_blocks


class TraceReader:
    """A trace at the time of opening. Get one from `open_trace`; a context manager."""

    def __init__(self, path: Path, data: mmap.mmap | bytes) -> None:
        self._path = path
        self._data = data
        self._zstd = Zstd()

    def attempts(self, rollout: str) -> list[int]:
        """The attempts of a rollout that have a trace, in order."""
        return sorted({piece.attempt for _, piece in self._find(rollout_key(rollout))})

    def events(self, rollout: str, attempt: int | None = None) -> list[pb.RolloutEvent]:
        """An attempt's events, in order; by default those of the last attempt.

        Empty if there are none. Raises UserError if they are damaged.
        """
        found = list(self._find(rollout_key(rollout)))
        if attempt is None:
            attempt = max((piece.attempt for _, piece in found), default=0)
        for block, piece in found:
            if piece.attempt == attempt:
                return self._events(self._unpack(block), piece)
        return []

    def __iter__(self) -> Iterator[list[pb.RolloutEvent]]:
        """Every attempt's events, in the order in which attempts ended."""
        for block in scan_blocks(self._data):
            content = self._unpack(block)
            for piece in block.pieces():
                yield self._events(content, piece)

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, key: bytes) -> Iterator[tuple[Block, Piece]]:
        for block in scan_blocks(self._data):
            if key in block.table:
                for piece in block.pieces():
                    if piece.key == key:
                        yield block, piece

    def _unpack(self, block: Block) -> bytes:
        try:
            return self._zstd.decompress(self._data[block.start : block.end])
        except (ValueError, MemoryError) as error:
            raise UserError(
                f"{self._path}: the events at byte {block.start} cannot be read: {error}"
            ) from None

    def _events(self, content: bytes, piece: Piece) -> list[pb.RolloutEvent]:
        try:
            return list(decode_events(content[piece.offset : piece.offset + piece.length]))
        except (ValueError, DecodeError) as error:
            raise UserError(f"{self._path}: damaged events: {error}") from None


def open_trace(path: str | Path) -> TraceReader:
    """Open the trace of a run; the run may still be active.

    Args:
        path: the run's `--output`.

    Raises:
        UserError: the run has no trace.
    """
    trace = OutputFiles(Path(path)).trace
    try:
        with trace.open("rb") as file:
            empty = not os.fstat(file.fileno()).st_size
            return TraceReader(
                trace, b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            )
    except FileNotFoundError:
        raise UserError(f"{trace} does not exist. Collect with --trace to keep traces") from None
    except OSError as error:
        raise unreadable(trace, error) from None
