"""How sandboxes of bubblewrap start and end, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import RunningSandbox
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from gymmesh_sandbox.backends.bubblewrap.sandbox import BubblewrapBox
from tests.support.sandbox_groups import groups_in
from tests.unit.sandbox_bubblewrap.boxes import INSTANCE, backend, box, collected, shell, spec


def running(mark: str) -> list[int]:
    """Processes with this in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


async def until_gone(mark: str) -> None:
    """Waits until no process has this in its command line."""
    async with asyncio.timeout(60):
        while running(mark):  # noqa: ASYNC110 - they are no children
            await asyncio.sleep(0.01)


async def test_nothing_is_left_of_a_sandbox(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        sandbox = await made.create(spec())
        await sandbox.start(process_pb2.ProcessSpec(shell="touch /tmp/x; sleep 98765"))
        await sandbox.end()
        await sandbox.end()
        assert groups_in(tmp_path) == []
        assert not running("98765")
        assert not list(tmp_path.glob("instances/*/boxes/*"))
        assert not groups_in(tmp_path)


async def test_a_process_that_runs_when_its_sandbox_ends_is_lost(
    opened: BubblewrapBackend,
) -> None:
    sandbox = await opened.create(spec())
    process = await sandbox.start(process_pb2.ProcessSpec(shell="sleep 1000"))
    await sandbox.end()
    with pytest.raises(MeshError, match="SANDBOX_LOST"):
        await process.wait()
    with pytest.raises(MeshError, match="SANDBOX_LOST"):
        await sandbox.start(process_pb2.ProcessSpec(shell="true"))
    with pytest.raises(MeshError, match="SANDBOX_LOST"):
        await sandbox.file_info(b"/work", sandbox.user)


async def test_a_sandbox_whose_first_process_is_killed_is_lost(opened: BubblewrapBackend) -> None:
    sandbox = await opened.create(spec())
    process = await sandbox.start(process_pb2.ProcessSpec(shell="echo $PPID; sleep 1000"))
    first = sandbox.first_pid
    os.kill(first, signal.SIGKILL)
    assert await sandbox.wait_lost() == "killed"
    with pytest.raises(MeshError, match="SANDBOX_LOST"):
        await process.wait()
    await sandbox.end()


async def test_the_spawner_is_started_again(opened: BubblewrapBackend) -> None:
    sandbox = await opened.create(spec())
    process = await sandbox.start(process_pb2.ProcessSpec(shell="sleep 87654"))
    assert opened._machine is not None
    spawner = opened._machine.starter.pid
    os.kill(spawner, signal.SIGKILL)
    assert await sandbox.wait_lost() == "its spawner was killed"
    with pytest.raises(MeshError, match="SANDBOX_LOST"):
        await process.wait()
    await until_gone("87654")
    await sandbox.end()
    async with box(opened, name="b-2") as another:
        assert (await shell(another, "true"))[0].exit_code == 0


async def test_calls_that_a_killed_spawner_had_are_lost(opened: BubblewrapBackend) -> None:
    sandbox = await opened.create(spec())
    assert opened._machine is not None
    spawner = opened._machine.starter.pid
    os.kill(spawner, signal.SIGSTOP)
    starting = asyncio.ensure_future(sandbox.start(process_pb2.ProcessSpec(shell="true")))
    making = asyncio.ensure_future(opened.create(spec("b-2")))
    async with asyncio.timeout(60):
        while len(opened._machine.starter._answers) < 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    os.kill(spawner, signal.SIGKILL)
    for call in (starting, making):
        with pytest.raises(MeshError, match="SANDBOX_LOST"):
            await call
    await sandbox.end()


async def test_a_spawner_that_does_not_start_again_loses_the_sandbox(
    opened: BubblewrapBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await opened.create(spec())
    assert opened._machine is not None
    os.kill(opened._machine.starter.pid, signal.SIGKILL)
    assert await sandbox.wait_lost() == "its spawner was killed"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(
            MeshError,
            match=r"SANDBOX_LOST.*the process that starts sandboxes did "
            "not start",
        ):
            await opened.create(spec("b-2"))
    async with box(opened, name="b-3") as another:
        assert (await shell(another, "true"))[0].exit_code == 0
    await sandbox.end()


_NEVER_READY = b"#!/bin/sh\nexec sleep 76598\n"


@pytest.mark.parametrize("victim", ["spawner", "launcher", "first process"])
async def test_a_start_that_is_killed_is_no_fault_of_the_image(
    opened: BubblewrapBackend, victim: str
) -> None:
    machine = opened._machine
    assert machine is not None
    program = os.memfd_create("first")
    os.write(program, _NEVER_READY)
    machine.first_process, own = program, machine.first_process
    making = asyncio.ensure_future(opened.create(spec()))
    async with asyncio.timeout(60):
        while not (first := running("sleep\x0076598")):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    launcher = _parent(first[0])
    assert _parent(launcher) == machine.starter.pid
    pids = {"spawner": machine.starter.pid, "launcher": launcher, "first process": first[0]}
    os.kill(pids[victim], signal.SIGKILL)
    with pytest.raises(MeshError, match="SANDBOX_LOST") as caught:
        await making
    cause = "its spawner was killed" if victim == "spawner" else "killed"
    assert caught.value.metadata == {"sandbox_id": "b-1", "cause": cause}
    os.close(program)
    machine.first_process = own
    async with box(opened, name="b-2") as another:
        assert (await shell(another, "true"))[0].exit_code == 0


async def test_a_first_process_that_ends_is_a_fault_of_the_image(
    opened: BubblewrapBackend,
) -> None:
    machine = opened._machine
    assert machine is not None
    program = os.memfd_create("first")
    os.write(program, b"#!/bin/sh\necho no library; exit 127\n")
    machine.first_process, own = program, machine.first_process
    with pytest.raises(MeshError, match=r"SANDBOX_IMAGE_FAILED.*no library"):
        await opened.create(spec())
    os.close(program)
    machine.first_process = own


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


_LIFE = """
import asyncio, sys
from pathlib import Path
from gymmesh.sandbox.v1 import process_pb2
from tests.unit.sandbox_bubblewrap.boxes import backend, spec

async def main():
    async with backend(Path(sys.argv[1])) as made:
        for number in range(3):
            sandbox = await made.create(spec(f"b-{number}"))
            await sandbox.start(process_pb2.ProcessSpec(shell="setsid sleep 76543"))
        print("up", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_nothing_is_left_when_the_service_is_killed(tmp_path: Path) -> None:
    life = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", _LIFE, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert life.stdout is not None
    with life.stdout:
        assert await asyncio.to_thread(life.stdout.readline) == b"up\n"
        life.kill()
    await asyncio.to_thread(life.wait)
    await until_gone("76543")
    async with backend(tmp_path) as made:
        # The first call of the fixture has removed what was left.
        assert await made.end_leftovers(INSTANCE) == 0
        assert not list(tmp_path.glob("instances/*/boxes/*"))
        assert not groups_in(tmp_path)


async def test_two_services_do_not_share_an_instance(tmp_path: Path) -> None:
    async with backend(tmp_path):
        with pytest.raises(ConfigError, match="Another sandbox service with the instance id"):
            async with backend(tmp_path):
                pass


async def test_a_start_that_is_cancelled_leaves_nothing(
    opened: BubblewrapBackend, tmp_path: Path
) -> None:
    for delay in (0.0, 0.001, 0.005, 0.02, 0.05):
        task = asyncio.ensure_future(opened.create(spec()))
        await asyncio.sleep(delay)
        task.cancel()
        try:
            sandbox = await task
        except asyncio.CancelledError:
            continue
        await sandbox.end()
    async with asyncio.timeout(60):
        while groups_in(tmp_path):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_a_start_that_is_cancelled_while_a_thread_prepares_it_leaves_nothing(
    opened: BubblewrapBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, removed, done = threading.Event(), threading.Event(), threading.Event()
    prepare, remove = BubblewrapBox._prepare, BubblewrapBox._remove

    def late(box: BubblewrapBox) -> None:
        begun.set()
        removed.wait(1.0)  # what removes it may not come first
        prepare(box)
        done.set()

    def noted(box: BubblewrapBox) -> None:
        remove(box)
        removed.set()

    monkeypatch.setattr(BubblewrapBox, "_prepare", late)
    monkeypatch.setattr(BubblewrapBox, "_remove", noted)
    task = asyncio.ensure_future(opened.create(spec()))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(done.wait)
    assert not groups_in(tmp_path)
    assert not list(tmp_path.glob("store/instances/*/boxes/*"))


async def test_closing_ends_all(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        for number in range(3):
            sandbox = await made.create(spec(f"b-{number}"))
            await sandbox.start(process_pb2.ProcessSpec(shell="sleep 65432"))
        await made.close()
        assert not running("65432")
        assert not groups_in(tmp_path)


async def test_the_work_folder_is_made(opened: BubblewrapBackend) -> None:
    async with box(opened, workdir="/srv/some/where") as sandbox:
        _, wrote, said = await shell(sandbox, "pwd; touch x && ls")
        assert wrote == b"/srv/some/where\nx\n", said


async def test_an_unknown_image_is_refused(opened: BubblewrapBackend) -> None:
    with pytest.raises(MeshError, match="SANDBOX_IMAGE_NOT_FOUND"):
        await opened.create(spec(root="nope"))


async def test_sandboxes_do_not_see_each_other(opened: BubblewrapBackend) -> None:
    async with box(opened, name="b-1") as one, box(opened, name="b-2") as two:
        await shell(one, "echo secret > /tmp/x; echo secret > /dev/shm/x; sleep 1000 &")
        _, wrote, _ = await shell(two, "cat /tmp/x /dev/shm/x; ps -eo args=")
        assert b"secret" not in wrote
        assert b"sleep" not in wrote


async def test_what_a_sandbox_writes_is_bounded(opened: BubblewrapBackend) -> None:
    resources = sandbox_pb2.Resources(disk_bytes=8 << 20)
    async with box(opened, resources=resources) as sandbox:
        ended, _, said = await shell(sandbox, "head -c 20000000 /dev/zero > /work/x")
        assert b"No space left" in said
        ended, _, _ = await shell(sandbox, "rm /work/x; echo small > /work/x")
        assert ended.exit_code == 0


async def test_many_at_once(opened: BubblewrapBackend) -> None:
    async def one(number: int) -> bytes:
        async with box(opened, name=f"b-{number}") as sandbox:
            return (await shell(sandbox, f"echo {number}"))[1]

    async with asyncio.timeout(120):
        wrote = await asyncio.gather(*map(one, range(16)))
    assert wrote == [b"%d\n" % number for number in range(16)]


async def test_a_stream_that_nobody_reads_does_not_hold_the_end(
    opened: BubblewrapBackend, sandbox: RunningSandbox
) -> None:
    process = await sandbox.start(process_pb2.ProcessSpec(shell="yes"))
    await anext(process.output())
    await process.signal(signal.SIGKILL, descendants=True)
    ended, _, _ = await collected(process)
    assert ended.signal == signal.SIGKILL
