"""Group commit, and disks that fail: nothing is acknowledged that is not on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gymmesh_client.disk import Disk, OutputError
from gymmesh_client.journal.journal import Journal, NewOutcome
from gymmesh_client.journal.writer import JournalWriter
from gymmesh_client.log_records import COMPLETED
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.rollout_ids import rollout_key


class FailingDisk(Disk):
    """Counts syncs, and fails where it is told to."""

    def __init__(self) -> None:
        self.syncs = 0
        self.write_fails: Callable[[bytes], int | None] = lambda data: None
        self.sync_fails_at: int | None = None

    def write(self, fd: int, data: bytes, offset: int) -> None:
        error = self.write_fails(data)
        if error is not None:
            super().write(fd, data[: len(data) // 2], offset)
            raise OSError(error, os.strerror(error))
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.sync_fails_at is not None and self.syncs >= self.sync_fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


def new(name: str, row: bytes = b"{}") -> NewOutcome:
    return NewOutcome(rollout_key(name), 1, COMPLETED, 0, row)


def opened(folder: Path, disk: Disk | None = None) -> tuple[OutputFiles, Journal]:
    files = OutputFiles(folder / "out.jsonl")
    return files, Journal.create(files, {"run_id": "r"}, disk)


async def test_a_group_shares_two_syncs(tmp_path: Path) -> None:
    disk = FailingDisk()
    files, journal = opened(tmp_path, disk)
    before = disk.syncs
    writer = JournalWriter(journal)
    await asyncio.gather(*(writer.append(new(f"r-{number}")) for number in range(100)))
    assert disk.syncs - before == 2
    assert len(files.rows.read_bytes().splitlines()) == 100
    await writer.close()
    await writer.close()
    journal.close()


async def test_append_returns_when_the_row_is_there(tmp_path: Path) -> None:
    files, journal = opened(tmp_path)
    writer = JournalWriter(journal, delay_s=0.0)
    for number in range(3):
        await writer.append(new(f"r-{number}"))
        assert journal.state.counts[COMPLETED] == number + 1
        assert len(files.rows.read_bytes().splitlines()) == number + 1
    await writer.close()
    journal.close()


async def test_what_waits_is_written_at_the_close(tmp_path: Path) -> None:
    files, journal = opened(tmp_path)
    writer = JournalWriter(journal, delay_s=3600.0)
    waiting = asyncio.create_task(writer.append(new("r-1")))
    await asyncio.sleep(0)
    await writer.close()
    await asyncio.wait_for(waiting, 60)
    assert files.rows.read_bytes() == b"{}\n"
    with pytest.raises(ValueError, match="closed"):
        await writer.append(new("r-2"))
    journal.close()


async def test_who_is_cancelled_spoils_nothing_for_others(tmp_path: Path) -> None:
    files, journal = opened(tmp_path)
    writer = JournalWriter(journal)
    works = [asyncio.create_task(writer.append(new(f"r-{number}"))) for number in range(3)]
    await asyncio.sleep(0)
    works[1].cancel()
    done = await asyncio.gather(*works, return_exceptions=True)
    assert [type(one) for one in done] == [type(None), asyncio.CancelledError, type(None)]
    assert len(files.rows.read_bytes().splitlines()) == 3
    await writer.close()
    journal.close()


async def test_a_second_outcome_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    files, journal = opened(tmp_path)
    writer = JournalWriter(journal)
    done = await asyncio.gather(
        writer.append(new("r-1")),
        writer.append(new("r-1")),
        writer.append(new("r-2")),
        return_exceptions=True,
    )
    assert [type(one) for one in done] == [type(None), ValueError, type(None)]
    with pytest.raises(ValueError, match="already"):
        await writer.append(new("r-1"))
    with pytest.raises(ValueError, match="two outcomes"):
        journal.commit([new("r-3"), new("r-3")])
    assert len(files.rows.read_bytes().splitlines()) == 2
    await writer.close()
    journal.close()


def rows_fail(data: bytes) -> int | None:
    return errno.ENOSPC if b"big" in data else None


def journal_fails(data: bytes) -> int | None:
    return errno.ENOSPC if data.startswith(b"\xf7GMC") else None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda disk: setattr(disk, "write_fails", rows_fail), "no space left on device"),
        (lambda disk: setattr(disk, "write_fails", journal_fails), "no space left on device"),
        (lambda disk: setattr(disk, "sync_fails_at", disk.syncs + 1), "input/output error"),
        (lambda disk: setattr(disk, "sync_fails_at", disk.syncs + 2), "input/output error"),
    ],
    ids=["rows", "journal", "rows-sync", "journal-sync"],
)
async def test_a_failing_disk_ends_the_run_and_it_goes_on_later(
    tmp_path: Path, spoil: Callable[[FailingDisk], None], words: str
) -> None:
    disk = FailingDisk()
    files, journal = opened(tmp_path, disk)
    writer = JournalWriter(journal)
    await writer.append(new("r-1"))
    before = files.rows.read_bytes(), files.journal.read_bytes()
    spoil(disk)
    works = [writer.append(new(f"big-{number}", b'"big"')) for number in range(3)]
    for error in await asyncio.gather(*works, return_exceptions=True):
        assert isinstance(error, OutputError)
        assert f"out.jsonl: cannot be written: {words}" in str(error)
        assert "--resume" in str(error)
    with pytest.raises(OutputError):
        await writer.append(new("r-4"))
    assert (files.rows.read_bytes(), files.journal.read_bytes()) == before
    await writer.close()
    journal.close()
    again = Journal.resume(files)
    assert again.state.counts[COMPLETED] == 1
    again.commit([new("big-1", b'"big"')])
    again.close()
    assert files.rows.read_bytes() == before[0] + b'"big"\n'


async def test_a_file_that_may_grow_no_more(tmp_path: Path) -> None:
    files, journal = opened(tmp_path)
    writer = JournalWriter(journal)
    await writer.append(new("r-1"))
    before = files.rows.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
        with pytest.raises(OutputError, match="file too large"):
            await writer.append(new("r-2", b'"' + b"x" * 100 + b'"'))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert files.rows.read_bytes() == before
    await writer.close()
    journal.close()


def test_a_reservation_is_on_disk_when_its_result_is_there(tmp_path: Path) -> None:
    disk = FailingDisk()
    _, journal = opened(tmp_path, disk)
    writer = JournalWriter(journal)
    before = disk.syncs
    writer.submit([]).result()
    assert disk.syncs == before + 1
    disk.sync_fails_at = 0
    with pytest.raises(OutputError):
        writer.submit([]).result()
    asyncio.run(writer.close())
    journal.close()
