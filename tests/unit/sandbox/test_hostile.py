"""Hostile programs: each is held, told apart from a failure of ours, and leaves nothing behind.

Each runs twice: in surroundings made for it, and in some that were made before it was there.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymmesh_resource.sandbox import BubblewrapSandbox, Ending, Limits, Result, program_in
from gymmesh_sandbox_local import Groups
from tests.unit.sandbox.machine import (
    BRIEF,
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


@pytest.fixture(params=["cold", "warm"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[BubblewrapSandbox]:
    before = descendants()
    async with opened(warm=2 if request.param == "warm" else 0) as sandbox:
        yield sandbox
        after = await run(sandbox, "print('still here')")
        assert after.stdout == b"still here\n"  # whatever happened, the next program runs
    assert not await left_behind(before)
    assert not groups()
    assert not late_files()


@pytest.fixture
async def ungrouped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[BubblewrapSandbox]:
    """A sandbox on a machine whose control groups cannot be used."""
    monkeypatch.setattr(Groups, "usable", lambda _: False)
    with caplog.at_level(logging.WARNING):
        async with opened() as sandbox:
            assert "Control groups can't be used on this machine" in caplog.text
            assert not sandbox.grouped
            yield sandbox


async def run(
    sandbox: BubblewrapSandbox, source: str, language: str = "python", limits: Limits = TIGHT
) -> Result:
    if sandbox.warm:
        # What was asked for once is started ahead for the next time.
        nothing = program_in(language, "")
        await sandbox.run(nothing, limits)
        await until_waiting(sandbox, nothing, limits)
    handed_over = sandbox.handed_over
    result = await sandbox.run(program_in(language, source), limits)
    assert sandbox.handed_over - handed_over == bool(sandbox.warm)
    return result


async def printed(sandbox: BubblewrapSandbox, source: str, language: str = "python") -> list[str]:
    result = await run(sandbox, source, language)
    assert result.succeeded, result
    return result.stdout.decode().splitlines()


async def test_fork_bomb(sandbox: BubblewrapSandbox) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    result = await run(sandbox, source, limits=BRIEF)
    assert not result.succeeded


async def test_shell_fork_bomb(sandbox: BubblewrapSandbox) -> None:
    result = await run(sandbox, "b() { b | b & }; b; sleep 600", "shell", BRIEF)
    assert not result.succeeded


async def test_processes_are_counted(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import os, time\n"
        "for n in range(100):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "    except OSError:\n"
        "        print(n); break\n"
    )
    assert 8 <= int((await printed(sandbox, source))[0]) <= TIGHT.processes + 2


async def test_threads_are_counted(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import threading, time, sys, os\n"
        "started = 0\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "        started += 1\n"
        "except RuntimeError: pass\n"
        "print(started, flush=True); os._exit(0)\n"
    )
    assert int((await printed(sandbox, source))[0]) <= TIGHT.processes + 2


async def test_memory_bomb_in_one_process(sandbox: BubblewrapSandbox) -> None:
    result = await run(sandbox, "x = bytearray(10**9)")
    assert b"MemoryError" in result.stderr


# Eight processes take 60 MB each of 128 MB, and stay; gives how many live when all that do have it.
MANY = (
    "import os, select, time\n"
    "reader, writer = os.pipe()\n"
    "alive, holders = set(), set()\n"
    "for _ in range(8):\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        x = bytearray(60 << 20)\n"
    "        for at in range(0, len(x), 4096): x[at] = 1\n"
    "        os.write(writer, os.getpid().to_bytes(4, 'big'))\n"
    "        time.sleep(600)\n"
    "    alive.add(pid)\n"
    "while not alive <= holders:\n"
    "    if select.select([reader], [], [], 0.02)[0]:\n"
    "        holders.add(int.from_bytes(os.read(reader, 4), 'big'))\n"
    "    alive.discard(os.waitpid(-1, os.WNOHANG)[0])\n"
    "print(len(alive))\n"
)


async def test_memory_bomb_in_many_processes(sandbox: BubblewrapSandbox) -> None:
    alive = int((await printed(sandbox, MANY))[0])
    # Without control groups each process has its own limit, and all of them fit.
    assert alive <= 2 if sandbox.grouped else alive == 8


async def test_many_processes_without_control_groups(ungrouped: BubblewrapSandbox) -> None:
    assert await printed(ungrouped, MANY) == ["8"]  # as docs/how-to/sandbox.md says


async def test_one_process_without_control_groups(ungrouped: BubblewrapSandbox) -> None:
    result = await run(ungrouped, "x = bytearray(10**9)")
    assert b"MemoryError" in result.stderr
    shared = "import mmap\nx = mmap.mmap(-1, 10**9)\nx.write(b'x' * 10**9)"
    assert not (await run(ungrouped, shared)).succeeded


# What holds memory that is no process's: a file in memory, and what System V offers.
OUTSIDE = (
    "import ctypes, os, platform\n"
    "try: os.memfd_create('x')\n"
    "except OSError as error: print(error.errno)\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "for number in (29, 64, 68) if platform.machine() == 'x86_64' else (194, 190, 186):\n"
    "    print(libc.syscall(number, 0, 1 << 30, 0o1600), ctypes.get_errno())\n"
)


async def test_memory_outside_of_processes(sandbox: BubblewrapSandbox) -> None:
    assert await printed(sandbox, OUTSIDE) == ["1", "-1 1", "-1 1", "-1 1"]


async def test_memory_outside_of_processes_without_control_groups(
    ungrouped: BubblewrapSandbox,
) -> None:
    assert await printed(ungrouped, OUTSIDE) == ["1", "-1 1", "-1 1", "-1 1"]
    # A file system in memory has a size: what is in it is bounded with or without groups.
    fill = (
        "written = 0\n"
        "for folder in ('/tmp', '/dev/shm'):\n"
        "    try:\n"
        "        for n in range(1000):\n"
        "            written += open(f'{folder}/{n}', 'wb', 0).write(b'x' * 65536)\n"
        "    except OSError: pass\n"
        "print(written)\n"
    )
    assert 0 < int((await printed(ungrouped, fill))[0]) <= 2 * TIGHT.tmp_bytes


async def test_endless_output(sandbox: BubblewrapSandbox) -> None:
    result = await run(sandbox, "while True: print('x' * 1000)")
    assert result.ending is Ending.OUTPUT_LIMIT
    assert len(result.stdout) == TIGHT.output_bytes


async def test_endless_errors(sandbox: BubblewrapSandbox) -> None:
    result = await run(sandbox, "yes no >&2", "shell")
    assert result.ending is Ending.OUTPUT_LIMIT
    assert len(result.stderr) <= TIGHT.output_bytes


async def test_endless_loop(sandbox: BubblewrapSandbox) -> None:
    result = await run(sandbox, "while True: pass")
    assert (result.ending, result.exit_code) == (Ending.EXITED, 128 + 9)  # by that of CPU


async def test_endless_sleep(sandbox: BubblewrapSandbox) -> None:
    source = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)"
    result = await run(sandbox, source, limits=BRIEF)
    assert result.ending is Ending.TIMED_OUT


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
async def test_filling_the_disk(sandbox: BubblewrapSandbox, folder: str) -> None:
    source = (
        "n = 0\n"
        "try:\n"
        "    for n in range(100):\n"
        f"        open(f'{folder}/{{n}}', 'wb').write(b'x' * 500_000)\n"
        "except OSError as error: print(n, error.errno)\n"
    )
    written, number = (await printed(sandbox, source))[0].split()
    assert int(written) * 500_000 <= TIGHT.tmp_bytes
    assert int(number) == 28  # ENOSPC


async def test_one_large_file(sandbox: BubblewrapSandbox) -> None:
    source = "try: open('/tmp/a', 'wb').truncate(1 << 30)\nexcept OSError as e: print(e.errno)"
    assert await printed(sandbox, source) == ["27"]  # EFBIG


async def test_the_system_is_read_only(sandbox: BubblewrapSandbox) -> None:
    source = (
        "for path in ('/x', '/app/main.py', '/app/x', '/dev/x', '/usr/x', '/usr/bin/python3',\n"
        "        '/etc/x', '/etc/ld.so.cache', '/proc/sys/kernel/hostname', '/proc/1/oom_adj_x'):\n"
        "    try: open(path, 'r+' if path.endswith('py') else 'w'); print('wrote', path)\n"
        "    except OSError: pass\n"
    )
    assert await printed(sandbox, source) == []


async def test_secrets_of_the_service(
    sandbox: BubblewrapSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "expected.json"
    secret.write_text("the expected output")
    monkeypatch.setenv("GYMMESH_SECRET", "s3cret")
    source = (
        "import os, glob\n"
        f"paths = [{str(secret)!r}, '/etc/shadow', '/etc/passwd', '/root', '/home', '/run',\n"
        f"    {str(Path(__file__))!r}, '/proc/1/root' + {str(secret)!r}]\n"
        "print([path for path in paths if os.path.exists(path)])\n"
        "def read(path):\n"
        "    try: return open(path, 'rb').read()\n"
        "    except PermissionError: return b''\n"
        "environments = [read(path) for path in glob.glob('/proc/[0-9]*/environ')]\n"
        "print(any(b's3cret' in text for text in environments), 'GYMMESH_SECRET' in os.environ)\n"
    )
    assert await printed(sandbox, source) == ["[]", "False False"]


async def test_no_descriptor_is_passed_on(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        source = (
            "import os\n"
            "print(len(os.listdir('/proc/self/fd')))\n"
            "try: print(os.listdir('/proc/1/fd'))\n"
            "except PermissionError: print('another user has it')\n"
        )
        # One more for the listing itself.
        assert await printed(sandbox, source) == ["4", "another user has it"]


async def test_the_network_is_out_of_reach(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import socket\n"
        "for family, address in ((2, ('1.1.1.1', 53)), (2, ('127.0.0.1', 22)), (10, ('::1', 22)),\n"
        "        (1, '/run/dbus/system_bus_socket'), (1, '\\0abstract')):\n"
        "    try:\n"
        "        with socket.socket(family) as s: s.settimeout(1); s.connect(address)\n"
        "        print('reached', address)\n"
        "    except OSError: pass\n"
        "for family in (16, 17, 38, 40):\n"  # netlink, packet, alg, vsock
        "    try: socket.socket(family, socket.SOCK_DGRAM); print('made', family)\n"
        "    except OSError: pass\n"
    )
    assert await printed(sandbox, source) == []


async def test_a_server_of_ours_is_out_of_reach(sandbox: BubblewrapSandbox) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = (
            "import socket\n"
            f"try: socket.create_connection(('127.0.0.1', {port}), 1); print('reached')\n"
            "except OSError: print('refused')\n"
        )
        assert await printed(sandbox, source) == ["refused"]


async def test_killing_everything(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import os, time\n"
        # Its parent is outside, where it has no number: 0 would be its own group.
        f"for pid in (1, -1, os.getppid() or 1, {os.getpid()}):\n"
        "    try: os.kill(pid, 9)\n"
        "    except OSError: pass\n"
        "time.sleep(0.1); print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))\n"
    )
    assert await printed(sandbox, source) == ["[1, 2]"]


async def test_forbidden_calls(sandbox: BubblewrapSandbox) -> None:
    # By name, for x86_64 and aarch64: ptrace, process_vm_writev, unshare, mount, keyctl, bpf,
    # userfaultfd, io_uring_setup, clone with a new user namespace.
    source = (
        "import ctypes, os, platform\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "x86 = platform.machine() == 'x86_64'\n"
        "calls = (101, 311, 272, 165, 250, 321, 323, 425) if x86 else "
        "(117, 271, 97, 40, 219, 280, 282, 425)\n"
        "for number in calls:\n"
        "    print(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
        "print(libc.syscall(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())\n"
    )
    assert await printed(sandbox, source) == ["-1 1"] * 9


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
async def test_the_other_interface_of_calls(sandbox: BubblewrapSandbox) -> None:
    source = "import ctypes\nctypes.CDLL(None).syscall(0x40000000 | 39)\nprint('went on')"
    assert not (await run(sandbox, source)).succeeded


async def test_memory_of_the_first_process(sandbox: BubblewrapSandbox) -> None:
    source = (
        "for path in ('/proc/1/mem', '/proc/kcore', '/dev/mem', '/dev/kmem'):\n"
        "    try: open(path, 'r+b').read(1); print('read', path)\n"
        "    except OSError: pass\n"
        "print('done')\n"
    )
    # Process 1 holds the namespaces and no secret.
    assert await printed(sandbox, source) == ["done"]


async def test_links_lead_nowhere(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    source = (
        f"ln -s {tmp_path}/secret a; cat a 2>/dev/null && echo read\n"
        "ln -s /etc/shadow b; cat b 2>/dev/null && echo read\n"
        "cat /proc/1/root/etc/shadow 2>/dev/null && echo read\n"
        f"cat /proc/1/cwd/../{tmp_path}/secret 2>/dev/null && echo read\n"
        "ln /usr/bin/python3 c 2>/dev/null && echo linked\n"
        f"echo x >a 2>/dev/null && echo wrote\ntrue\n"
    )
    assert await printed(sandbox, source, "shell") == []
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


async def test_a_daemon_dies_with_its_program(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for descriptor in range(3): os.close(descriptor)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "print('left it')\n"
    )
    assert await printed(sandbox, source) == ["left it"]


async def test_a_daemon_that_holds_the_output(sandbox: BubblewrapSandbox) -> None:
    source = "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('left it')"
    result = await run(sandbox, source)
    assert result.succeeded
    assert result.duration_s < TIGHT.wall_s


async def test_nothing_stays_for_the_next_program(sandbox: BubblewrapSandbox) -> None:
    await printed(sandbox, "open('/tmp/note', 'w').write('x')\nopen('/dev/shm/n', 'w')")
    assert await printed(
        sandbox, "import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'))"
    ) == ["[] []"]


async def test_a_shadowing_module_is_not_imported(sandbox: BubblewrapSandbox) -> None:
    source = (
        "open('json.py', 'w').write('print(\"shadow\")')\n"
        "import os, subprocess, sys\n"
        "os.environ['PYTHONPATH'] = '/tmp'\n"
        "subprocess.run([sys.executable, '-I', '-c', 'import json'])\n"
        "import json; print(json.__file__.startswith('/usr'))\n"
    )
    assert await printed(sandbox, source) == ["True"]


async def test_the_program_is_nobody(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import os\nprint(os.getuid(), os.getgid(), os.getgroups())\n"
        "lines = list(open('/proc/self/status'))\n"
        "print([l.split()[1] for l in lines if l.startswith(('CapEff', 'CapPrm'))])\n"
        "print([l.split()[1] for l in lines if l.startswith('NoNewPrivs')])\n"
    )
    lines = await printed(sandbox, source)
    assert lines[0].startswith("1000 1000")
    assert lines[1:] == ["['0000000000000000', '0000000000000000']", "['1']"]


async def test_a_terminal_is_not_typed_into(sandbox: BubblewrapSandbox) -> None:
    source = (
        "import fcntl\n"
        "try: fcntl.ioctl(0, 0x5412, b'x')\n"
        "except OSError as error: print(error.errno)\n"
    )
    assert await printed(sandbox, source) == ["1"]
