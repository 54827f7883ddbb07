"""Traces: every event there and back, torn tails, a bounded backlog, disks that fail."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputError, UserError, open_trace
from gymmesh_client.disk import Disk
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.traces import TraceWriter
from gymmesh_client.traces.blocks import (
    Piece,
    decode_events,
    encode_block,
    encode_events,
    scan_blocks,
)
from tests.support.rollouts import answer, completed, make_events, verdict

EVENT = st.builds(pb.RolloutEvent, rollout_id=st.text(min_size=1, max_size=300))
EVENTS = st.lists(EVENT, max_size=4)


@given(EVENTS)
def test_events_come_back(events: list[pb.RolloutEvent]) -> None:
    assert list(decode_events(encode_events(events))) == events


@given(st.lists(EVENT, min_size=1, max_size=4), st.data())
def test_events_cut_short_are_told(events: list[pb.RolloutEvent], data: st.DataObject) -> None:
    raw = encode_events(events)
    cut = data.draw(st.integers(1, len(raw) - 1))
    try:
        got = list(decode_events(raw[:cut]))
    except ValueError:
        return
    assert got == events[: len(got)]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.data())
def test_a_torn_block_ends_the_trace(frames: list[bytes], data: st.DataObject) -> None:
    blocks = [encode_block([Piece(b"k" * 16, 1, 0, 3)], frame) for frame in frames]
    whole, before = b"".join(blocks), len(b"".join(blocks[:-1]))
    cut = data.draw(st.integers(before, len(whole) - 1))
    assert [block.end for block in scan_blocks(whole[:cut])] == [
        len(b"".join(blocks[: number + 1])) for number in range(len(frames) - 1)
    ]


def events_of(rollout: str, attempt: int = 1, text: str = "5") -> list[pb.RolloutEvent]:
    return make_events(rollout, attempt, answer(text), verdict(1.0), completed())


def files_in(folder: Path) -> OutputFiles:
    return OutputFiles(folder / "out.jsonl")


def write(files: OutputFiles, *attempts: tuple[str, int]) -> None:
    writer = TraceWriter(files.trace)
    for rollout, attempt in attempts:
        recording = writer.record(rollout, attempt)
        for event in events_of(rollout, attempt):
            recording.add(event)
        recording.end()
    writer.close()
    writer.close()


def test_what_was_recorded_is_read(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    wanted = [(f"ro-{number}", 1) for number in range(50)]
    write(files, *wanted, ("ro-7", 2))
    write(files, ("ro-7", 3))  # a run that is gone on with
    with open_trace(files.rows) as trace:
        assert trace.events("ro-3") == events_of("ro-3")
        assert trace.attempts("ro-7") == [1, 2, 3]
        assert trace.events("ro-7") == events_of("ro-7", 3)
        assert trace.events("ro-7", 2) == events_of("ro-7", 2)
        assert trace.events("ro-7", 9) == trace.events("ro-99") == []
        all_of_them = [(events[0].rollout_id, events[0].attempt) for events in trace]
    assert all_of_them == [*wanted, ("ro-7", 2), ("ro-7", 3)]


def test_any_decompressor_reads_it(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    write(files, ("ro-1", 1), ("ro-2", 1))
    write(files, ("ro-3", 1))
    raw = files.trace.read_bytes()
    reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    events = list(decode_events(reader.read()))
    assert events == [*events_of("ro-1"), *events_of("ro-2"), *events_of("ro-3")]


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    write(files, ("ro-1", 1))
    whole = files.trace.read_bytes()
    write(files, ("ro-2", 1))
    files.trace.write_bytes(files.trace.read_bytes()[:-3])
    with open_trace(files.rows) as trace:
        assert [events[0].rollout_id for events in trace] == ["ro-1"]
    write(files, ("ro-3", 1))
    assert files.trace.read_bytes().startswith(whole)
    with open_trace(files.rows) as trace:
        assert [events[0].rollout_id for events in trace] == ["ro-1", "ro-3"]


def test_damaged_events_are_told(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    write(files, ("ro-1", 1))
    raw = bytearray(files.trace.read_bytes())
    raw[-8] ^= 1
    files.trace.write_bytes(raw)
    with (
        open_trace(files.rows) as trace,
        pytest.raises(UserError, match=r"out\.trace: the events at byte \d+ cannot be read"),
    ):
        trace.events("ro-1")


def test_no_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"out\.trace does not exist. Collect with --trace"):
        open_trace(files_in(tmp_path).rows)
    files_in(tmp_path).trace.touch()
    with open_trace(files_in(tmp_path).rows) as trace:
        assert trace.events("ro-1") == []


class StuckDisk(Disk):
    """Writes nothing until it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.error: int | None = None

    def write(self, fd: int, data: bytes, offset: int) -> None:
        assert self.let.wait(60)
        if self.error is not None:
            raise OSError(self.error, "No space left on device")
        super().write(fd, data, offset)


async def test_a_slow_disk_holds_new_attempts_back(tmp_path: Path) -> None:
    disk = StuckDisk()
    writer = TraceWriter(files_in(tmp_path).trace, disk, backlog=3)
    for number in range(3):
        await asyncio.wait_for(writer.room(), 60)
        writer.put(f"ro-{number}", 1, events_of(f"ro-{number}"))
    waiting = asyncio.create_task(writer.room())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    disk.let.set()
    await asyncio.wait_for(waiting, 60)
    writer.close()


async def test_a_full_disk_is_said_to_the_next_attempt(tmp_path: Path) -> None:
    disk = StuckDisk()
    disk.error = errno.ENOSPC
    disk.let.set()
    writer = TraceWriter(files_in(tmp_path).trace, disk, backlog=1)
    writer.put("ro-1", 1, events_of("ro-1"))
    with pytest.raises(OutputError, match=r"out\.trace: cannot be written: no space left"):
        await asyncio.wait_for(writer.room(), 60)
    with pytest.raises(OutputError):
        writer.close()


@pytest.mark.parametrize(
    ("content", "declared"),
    [
        (b"\x05\xff\xff\xff\xff\xff", True),  # no event
        (b"\x7f", True),  # cut short
        (b"\x7f", False),  # in a frame that does not say how much it holds
        (b"\xff" * 100_000, True),  # a length without an end
    ],
)
def test_a_trace_of_somebody_else_s_is_damaged_and_no_crash(
    tmp_path: Path, content: bytes, declared: bool
) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=declared)
    frame = compressor.compress(content)
    files = files_in(tmp_path)
    key = rollout_key("ro-1")
    files.trace.write_bytes(encode_block([Piece(key, 1, 0, len(content))], frame))
    with open_trace(files.rows) as trace, pytest.raises(UserError, match=r"out\.trace: "):
        trace.events("ro-1")


def test_a_frame_that_says_it_is_huge_is_not_unpacked(tmp_path: Path) -> None:
    # A frame's head: magic, a size of 8 bytes in one segment, 2**50; then nothing of it.
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + b"\x01\x00\x00"
    files = files_in(tmp_path)
    files.trace.write_bytes(encode_block([Piece(rollout_key("ro-1"), 1, 0, 9)], frame))
    with open_trace(files.rows) as trace, pytest.raises(UserError, match="too much memory"):
        trace.events("ro-1")
