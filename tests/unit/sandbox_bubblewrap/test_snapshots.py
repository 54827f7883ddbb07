"""Snapshots of sandboxes of bubblewrap: what they have, what is shared, what is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.unit.sandbox_bubblewrap.boxes import box, shell


async def test_a_snapshot_has_what_was_written(opened: BubblewrapBackend) -> None:
    async with box(opened) as sandbox:
        await shell(sandbox, "echo one > a; mkdir d; echo two > d/b; ln -s a l")
        image = await sandbox.snapshot("s")
        assert (image.name, image.snapshot) == ("s", True)
        assert [one.name for one in await opened.images()] == ["host", "s"]
        async with box(opened, name="b-2", root="s") as fork:
            _, wrote, said = await shell(fork, "cat a d/b l; id -u; pwd")
            assert wrote == b"one\ntwo\none\n1000\n/work\n"
            assert said == b""
            await shell(fork, "echo fork > a; rm d/b")
            _, wrote, _ = await shell(sandbox, "cat a d/b")
            assert wrote == b"one\ntwo\n"
            await shell(sandbox, "echo changed > a; echo new > c")
            _, wrote, _ = await shell(fork, "cat a; ls")
            assert wrote == b"fork\na\nd\nl\n"


@pytest.mark.parametrize("disk", [0, 32 << 20])
async def test_a_sandbox_is_used_as_before_after_its_snapshot(
    opened: BubblewrapBackend, disk: int
) -> None:
    resources = sandbox_pb2.Resources(disk_bytes=disk)
    async with box(opened, resources=resources) as sandbox:
        for number in range(3):
            await shell(sandbox, f"echo {number} >> a; echo {number} > f{number}")
            await sandbox.snapshot(f"s{number}")
        _, wrote, _ = await shell(sandbox, "cat a f0 f1 f2")
        assert wrote == b"0\n1\n2\n0\n1\n2\n"
        await sandbox.write_file(files_pb2.FileContent(path=b"b", content=b"x"), sandbox.user)
        for number in range(3):
            async with box(opened, name=f"b-{number}", root=f"s{number}") as fork:
                _, wrote, _ = await shell(fork, "cat a; ls")
                names = "".join(f"f{one}\n" for one in range(number + 1))
                lines = "".join(f"{one}\n" for one in range(number + 1))
                assert wrote.decode() == f"{lines}a\n{names}"


async def test_a_snapshot_leaves_processes_alone(opened: BubblewrapBackend) -> None:
    async with box(opened) as before:
        await shell(before, "mkdir -p gone/a; touch gone/a/b there; mkdir -p new/a; touch new/a/b")
        await before.snapshot("before")
    async with box(opened, root="before") as sandbox:
        line = "echo a > f; rm -r gone new; mkdir new; touch new/c; echo up; read x; cat f"
        process = await sandbox.start(process_pb2.ProcessSpec(shell=line))
        output = process.output()
        await anext(output)
        await sandbox.snapshot("s")
        async with box(opened, name="b-2", root="s") as fork:
            _, wrote, _ = await shell(fork, "cat f; find . | sort")
            assert wrote == b"a\n.\n./f\n./new\n./new/c\n./there\n"
        await process.write(b"\n")
        assert [piece async for _, piece in output] == [b"a\n"]
        assert (await process.wait()).exit_code == 0


async def test_what_outlived_its_process_is_left_alone(opened: BubblewrapBackend) -> None:
    async with box(opened) as sandbox:
        await shell(sandbox, "setsid sleep 1000 & echo")
        await sandbox.snapshot("s")
        _, wrote, _ = await shell(sandbox, "ps -eo args=")
        assert b"sleep 1000" in wrote


async def test_a_snapshot_that_is_deleted_stays_for_those_who_use_it(
    opened: BubblewrapBackend, tmp_path: Path
) -> None:
    async with box(opened) as sandbox:
        await shell(sandbox, "echo one > a")
        await sandbox.snapshot("s")
    async with box(opened, name="b-2", root="s") as fork:
        await opened.delete_snapshot("s")
        await opened.delete_snapshot("s")
        with pytest.raises(MeshError, match="SANDBOX_IMAGE_NOT_FOUND"):
            async with box(opened, name="b-3", root="s"):
                pass
        assert (await shell(fork, "cat a"))[1] == b"one\n"
        assert len(list(tmp_path.glob("store/instances/*/layers/*"))) == 1
    assert not list(tmp_path.glob("store/instances/*/layers/*"))


async def test_forks_share_what_they_do_not_write(
    opened: BubblewrapBackend, tmp_path: Path
) -> None:
    async with box(opened) as sandbox:
        await shell(sandbox, "head -c 20000000 /dev/urandom > big; sha256sum big > sum")
        await sandbox.snapshot("s")
    forks: list[RunningSandbox] = []
    try:
        for number in range(4):
            async with box(opened, name=f"b-{number}", root="s") as fork:
                ended, wrote, _ = await shell(fork, "sha256sum -c sum")
                assert (ended.exit_code, wrote) == (0, b"big: OK\n")
        blocks = [path.lstat().st_blocks for path in tmp_path.rglob("*")]
        assert sum(blocks) * 512 < 24_000_000
    finally:
        for fork in forks:
            await fork.end()


async def test_a_process_that_is_starting_is_not_cut_off(opened: BubblewrapBackend) -> None:
    async with box(opened) as sandbox:
        process = await sandbox.start(process_pb2.ProcessSpec(shell="sleep 1000"))
        await sandbox.snapshot("s")
        await process.signal(signal.SIGTERM, descendants=False)
        assert (await process.wait()).signal == signal.SIGTERM
