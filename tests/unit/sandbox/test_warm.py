"""Programs started ahead: each for one use, the same as one that was not, and none left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gymmesh_resource.sandbox import BubblewrapSandbox, Ending, Limits, Program, program_in
from tests.unit.sandbox.machine import (
    TIGHT,
    descendants,
    groups,
    late_files,
    left_behind,
    opened,
    require_bubblewrap,
    until_waiting,
)

require_bubblewrap()

PROGRAMS = {
    "globals": "print(sorted(globals()), __name__, __file__, __loader__, __spec__)",
    "arguments": "import sys; print(sys.argv, sys.path, sys.flags.isolated, sys.stdin.read())",
    "error": "def f():\n    return 1 / 0\n\nf()",
    "error of an error": "try:\n    1 / 0\nfinally:\n    raise KeyError('k')",
    "no Python": "print('before')\nthis is no Python",
    "exit with text": "import sys; sys.exit('gone')",
    "exit with a number": "raise SystemExit(7)",
    "exit handler": "import atexit; atexit.register(print, 'bye'); raise OSError('x')",
    "own hook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0])\n1 / 0",
    "thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
    "own source": "import inspect\ndef f(): pass\n"
    "print(inspect.getsource(f), open(__file__).read())",
    "pickle": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__)",
    "other process": "import multiprocessing as m\ndef f(q): q.put(5)\nif __name__ == '__main__':\n"
    "    q = m.get_context('spawn').SimpleQueue()\n"
    "    p = m.get_context('spawn').Process(target=f, args=(q,))\n"
    "    p.start(); print(q.get()); p.join()",
    "limits": "import resource\nprint([resource.getrlimit(n) for n in range(10)])",
    "abort": "import os; os.abort()",
    "annotations": "x: int = 1\nprint(__annotations__, __doc__)",
    "empty": "",
}
ROOMY = Limits(wall_s=120.0, processes=32)


async def warmed(sandbox: BubblewrapSandbox, program: Program, limits: Limits = TIGHT) -> None:
    await sandbox.run(program, limits)
    await until_waiting(sandbox, program, limits)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_python_program_cannot_tell(name: str) -> None:
    program = program_in("python", PROGRAMS[name], b"given")
    async with opened(warm=1) as sandbox:
        cold = await sandbox.run(program, ROOMY)
        await until_waiting(sandbox, program, ROOMY)
        warm = await sandbox.run(program, ROOMY)
        assert sandbox.handed_over == 1
    assert (warm.ending, warm.exit_code) == (cold.ending, cold.exit_code)
    addresses = str.maketrans("0123456789abcdef", "0" * 16)  # of objects, in what they print
    assert warm.stdout.decode().translate(addresses) == cold.stdout.decode().translate(addresses)
    assert warm.stderr == cold.stderr


async def test_a_shell_program_reads_its_whole_input() -> None:
    program = program_in("shell", 'echo "$0 $#"; cat; exit 3', b"one\ntwo\n")
    async with opened(warm=1) as sandbox:
        await warmed(sandbox, program)
        result = await sandbox.run(program, TIGHT)
        assert sandbox.handed_over == 1
    assert (result.stdout, result.exit_code) == (b"/app/main.sh 0\none\ntwo\n", 3)


async def test_each_is_used_once() -> None:
    note = program_in("python", "open('/tmp/a', 'w'); import os; print(os.listdir('/tmp'))")
    async with opened(warm=3) as sandbox:
        for _ in range(12):
            assert (await sandbox.run(note, TIGHT)).stdout == b"['a']\n"
            await until_waiting(sandbox, note)
        assert sandbox.handed_over == 11


async def test_what_holds_a_program_is_in_force_before_it_is_there() -> None:
    before = inner()
    async with opened(warm=1) as sandbox:
        await warmed(sandbox, program_in("python", ""))
        waiting = inner() - before
        assert len(waiting) == 2  # the first process of its space, and the interpreter
        for pid in waiting:
            fields = dict(line.split(":", 1) for line in status(pid).splitlines())
            assert fields["Seccomp"].strip() == "2"  # by a filter
            assert fields["NoNewPrivs"].strip() == "1"
            assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
            mounts = Path(f"/proc/{pid}/mountinfo").read_text()
            assert all(" ro," in line for line in mounts.splitlines() if " /app/" in line)
            if not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/usr"):
                continue  # the first process, which no program can make work
            limits = Path(f"/proc/{pid}/limits").read_text()
            assert f"Max address space         {TIGHT.memory_bytes}" in limits
            assert f"Max open files            {TIGHT.open_files}" in limits
            assert f"Max file size             {TIGHT.file_bytes}" in limits


async def test_other_limits_are_another_kind() -> None:
    program = program_in("python", "import resource; print(resource.getrlimit(7)[0])")
    async with opened(warm=2) as sandbox:
        await warmed(sandbox, program)
        other = await sandbox.run(program, Limits(open_files=77))
        assert (other.stdout, sandbox.handed_over) == (b"77\n", 0)


async def test_what_waits_is_what_was_asked_for_last() -> None:
    python, shell = program_in("python", ""), program_in("shell", "")
    async with opened(warm=2) as sandbox:
        for _ in range(2):
            await sandbox.run(python, TIGHT)
        await until_waiting(sandbox, python, count=2)
        for _ in range(2):
            await sandbox.run(shell, TIGHT)
        await until_waiting(sandbox, shell, count=2)
        assert sandbox.waiting(python, TIGHT) == 0


async def test_a_language_without_a_way_to_wait_runs_all_the_same() -> None:
    program = Program(("/bin/echo", "1"))
    async with opened(warm=2) as sandbox:
        for _ in range(3):
            assert (await sandbox.run(program, TIGHT)).stdout == b"1\n"
        assert (sandbox.waiting(program, TIGHT), sandbox.handed_over) == (0, 0)


async def test_a_talk_with_a_program_that_waits_by_itself() -> None:
    command = ("/bin/sh", "-c", "echo hello; exec cat")
    program = Program(command, waiting=command)
    async with opened(warm=1) as sandbox:
        for _ in range(3):
            async with sandbox.start(program, TIGHT) as running:
                assert await running.read_exactly(6) == b"hello\n"
                await running.write(b"abc")
                assert await running.read_exactly(3) == b"abc"
            await until_waiting(sandbox, program)
        assert sandbox.handed_over == 2


async def test_one_that_died_while_it_waited_harms_nobody() -> None:
    program = program_in("python", "print('fine')")
    async with opened(warm=1) as sandbox:
        before = inner()
        await warmed(sandbox, program)
        for pid in inner() - before:
            with contextlib.suppress(ProcessLookupError):  # the first one takes the others along
                os.kill(int(pid), signal.SIGKILL)
            for _ in range(1000):
                if re.search(r"^State:\tZ", state := status(pid), re.MULTILINE) or not state:
                    break
                await asyncio.sleep(0.005)
        assert (await sandbox.run(program, TIGHT)).stdout == b"fine\n"
    assert not groups()


async def test_one_that_cannot_wait_is_not_tried_again_and_again() -> None:
    program = Program(("/bin/echo", "cold"), waiting=("/bin/false",))
    async with opened(warm=2) as sandbox:
        for _ in range(3):
            assert (await sandbox.run(program, TIGHT)).stdout == b"cold\n"
            await asyncio.sleep(0.1)
        assert sandbox.waiting(program, TIGHT) == 0


async def test_they_end_when_nobody_asks_any_more() -> None:
    program = program_in("python", "")
    sandbox = BubblewrapSandbox(warm=2, warm_idle_s=4.0)
    await sandbox.open()
    try:
        before = descendants()
        await warmed(sandbox, program)
        assert descendants() != before
        assert not await left_behind(before)
        assert sandbox.waiting(program, TIGHT) == 0
        await warmed(sandbox, program)  # and they are there again for who asks again
    finally:
        await sandbox.close()


async def test_closing_ends_them_in_the_midst_of_a_start() -> None:
    before = descendants()
    for pause in (0.0, 0.005, 0.01, 0.02, 0.03):
        async with opened(warm=3) as sandbox:
            await sandbox.run(program_in("python", ""), TIGHT)
            await asyncio.sleep(pause)
    assert not await left_behind(before)
    assert not groups()
    assert not late_files()


async def test_many_at_a_time_each_get_their_own_answer() -> None:
    async with opened(concurrency=4, warm=4) as sandbox:

        async def double(number: int) -> bytes:
            await asyncio.sleep(number * 0.01)
            source = f"print(2 * {number}, input())"
            result = await sandbox.run(program_in("python", source, b"%d\n" % number), ROOMY)
            return result.stdout

        answers = await asyncio.gather(*map(double, range(40)))
    assert answers == [b"%d %d\n" % (2 * number, number) for number in range(40)]


async def test_time_counts_from_the_request() -> None:
    program = program_in("python", "import time; time.sleep(60)")
    limits = Limits(wall_s=0.5)
    async with opened(warm=1) as sandbox:
        await warmed(sandbox, program, limits)
        await asyncio.sleep(0.7)
        result = await sandbox.run(program, limits)
        assert sandbox.handed_over == 1
    assert result.ending is Ending.TIMED_OUT
    assert result.duration_s > 0.4


SERVICE = """
import asyncio, sys
sys.path.insert(0, {root!r})
from tests.unit.sandbox.machine import TIGHT, until_waiting
from gymmesh_resource.sandbox import BubblewrapSandbox, program_in

async def main():
    sandbox = BubblewrapSandbox(warm=2)
    await sandbox.open()
    program = program_in("python", "")
    for _ in range(2):
        await sandbox.run(program, TIGHT)
    await until_waiting(sandbox, program, count=2)
    print("waiting", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_they_die_with_a_service_that_is_killed() -> None:
    before = descendants()
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", SERVICE.format(root=root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "waiting\n"
        assert descendants() != before
        service.kill()
    assert not asyncio.run(left_behind(before))
    assert not late_files(service.pid)


def inner() -> set[str]:
    """The processes below this one that are in a space of process ids of their own."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if re.search(r"^NSpid:\t\d+\t\d+", status(pid), re.MULTILINE) and ours(pid):
            found.add(pid)
    return found


def ours(pid: str) -> bool:
    while pid not in ("0", "1", ""):
        if pid == str(os.getpid()):
            return True
        pid = "".join(re.findall(r"^PPid:\t(\d+)", status(pid), re.MULTILINE))
    return False


def status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
