"""Processes that a program leaves are ended, whatever they do to stay. In real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gymmesh_sandbox_access import SandboxHandle, SandboxSpec
from gymmesh_sandbox_access.leftovers import SeenProcesses, end_others, running
from tests.support.bubblewrap_sandboxes import bubblewrap_sandbox

_BEGIN = "import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\n"
_LEAVE = (
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "for descriptor in range(3): os.close(descriptor)\n"
)  # fmt: skip
#: Names that are commands of `echo`, fields of /proc/PID/stat, numbers of other processes.
_NAMES = [
    b"a\\n1",
    b"x) Z 1\nq",
    b"-n",
    b"\\c",
    b"1 2 3",
    b"\xff\xfe",
    b"a\x0b17",
    b"$(kill 1)",
    b"*",
]


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[SandboxHandle]:
    async with bubblewrap_sandbox(tmp_path, SandboxSpec(memory_mb=256, pids=64)) as made:
        yield made


async def left_by(sandbox: SandboxHandle, program: str) -> SeenProcesses:
    """What ran before a program, which then ran to its own end."""
    before = await running(sandbox)
    result = await sandbox.exec(["python3", "-c", _BEGIN + program])
    assert result.ok, result.error_text
    return before


async def gone(sandbox: SandboxHandle, kept: SeenProcesses) -> None:
    """Returns once nothing runs but this: what was killed takes a moment to die."""
    async with asyncio.timeout(60):
        while (await running(sandbox)).processes != kept.processes:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def first_thread_ended(sandbox: SandboxHandle) -> None:
    """Returns once a process of the sandbox shows as a zombie: its first thread may still run."""
    async with asyncio.timeout(60):
        while True:
            result = await sandbox.exec("cat /proc/[0-9]*/stat | grep -c ' Z '")
            if int(result.text) > 0:
                return
            await asyncio.sleep(0.05)


async def test_names_are_only_shown(sandbox: SandboxHandle) -> None:
    server = await sandbox.start(["sleep", "1000"])
    program = (
        f"for name in {_NAMES!r}:\n"
        "    if os.fork() == 0:\n"
        "        libc.prctl(15, name, 0, 0, 0)\n"
        "        os.setsid()\n"
        "        for descriptor in range(3): os.close(descriptor)\n"
        "        time.sleep(1000)\n"
        "time.sleep(0.2)\n"
    )
    before = await left_by(sandbox, program)
    assert [one.name for one in before.processes] == ["sleep"]
    left = await end_others(sandbox, before)
    assert len(left) == len(_NAMES), left
    assert {"a\\n1", "x) Z 1", "-n", "1 2 3", "*"} <= {one.name for one in left}
    await gone(sandbox, before)
    assert not (await server.status()).HasField("exit")


async def test_a_number_that_came_again_is_another_process(sandbox: SandboxHandle) -> None:
    await sandbox.start(["sleep", "1000"])
    seen = await running(sandbox)
    (process,) = seen.processes
    earlier = replace(seen, processes=(replace(process, began=process.began - 1),))
    assert await end_others(sandbox, seen) == ()
    assert await end_others(sandbox, earlier) == (process,)
    await gone(sandbox, SeenProcesses())


async def test_a_process_whose_first_thread_has_ended(sandbox: SandboxHandle) -> None:
    program = (
        _LEAVE + "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "libc.syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n"
    )
    before = await left_by(sandbox, program)
    await first_thread_ended(sandbox)
    left = await end_others(sandbox, before)
    assert [one.name for one in left] == ["python3"]
    assert await end_others(sandbox, before) == ()


async def test_processes_that_are_born_faster_than_they_are_found(sandbox: SandboxHandle) -> None:
    program = (
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        for descriptor in range(3): os.close(descriptor)\n"
        "        while True:\n"
        "            try:\n"
        "                if os.fork(): os._exit(0)\n"
        "            except OSError: pass\n"
        "            with open('born', 'a') as file: file.write('x')\n"
        "while not os.path.exists('born') or os.path.getsize('born') < 100: time.sleep(0.01)\n"
    )
    server = await sandbox.start(["sleep", "1000"])
    before = await left_by(sandbox, program)
    assert await end_others(sandbox, before)
    await gone(sandbox, before)
    assert not (await server.status()).HasField("exit")
    assert (await sandbox.exec("echo works")).text == "works\n"


async def test_as_many_processes_as_there_may_be(sandbox: SandboxHandle) -> None:
    program = (
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            for descriptor in range(3): os.close(descriptor)\n"
        "            time.sleep(1000)\n"
        "    except OSError: break\n"
    )
    before = await left_by(sandbox, program)
    left = await end_others(sandbox, before)
    assert len(left) > 40
    await gone(sandbox, before)
