"""Programs in a sandbox of bubblewrap: what they see, what they write, how they end."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.base import RunningSandbox, Stream
from gymmesh_sandbox.backends.bubblewrap import BubblewrapBackend
from tests.unit.sandbox_bubblewrap.boxes import box, collected, shell


def argv(*words: bytes, **fields: object) -> process_pb2.ProcessSpec:
    command = process_pb2.Argv(words=words)
    return process_pb2.ProcessSpec(argv=command, **fields)  # type: ignore[arg-type]


async def test_a_program_runs_as_the_users_own_in_its_folder(sandbox: RunningSandbox) -> None:
    ended, wrote, said = await shell(sandbox, "id -u; pwd; echo $HOME; echo err >&2; exit 3")
    assert ended.exit_code == 3
    assert wrote == b"1000\n/work\n/home/sandbox\n"
    assert said == b"err\n"


async def test_words_reach_the_program_as_they_are(sandbox: RunningSandbox) -> None:
    words = (b"printf", b"%s|", b"a b", b"", b"\xff\n", b"x" * 120_000)
    _, wrote, _ = await collected(await sandbox.start(argv(*words)))
    assert wrote == b"a b||\xff\n|" + b"x" * 120_000 + b"|"


async def test_variables_are_the_images_the_sandboxs_and_the_process(
    opened: BubblewrapBackend,
) -> None:
    async with box(opened, env={"A": "sandbox", "B": "sandbox"}) as sandbox:
        _, wrote, _ = await shell(sandbox, "echo $A $B $LANG", env={"B": "process"})
    assert wrote == b"sandbox process C.UTF-8\n"


@pytest.mark.parametrize(
    ("process", "code", "said"),
    [
        (argv(b"nope"), 127, b"nope: No such file"),
        (argv(b"/work/nope"), 127, b"/work/nope: No such file"),
        (argv(b"/etc/passwd"), 126, b"/etc/passwd: Permission denied"),
        (argv(b"/work"), 126, b"/work: Permission denied"),
        (argv(b"true", cwd="/nope"), 126, b"cannot start in /nope"),
        (argv(b""), 127, b"'': No such file"),
    ],
)
async def test_what_cannot_be_run_ends_with_a_line(
    sandbox: RunningSandbox, process: process_pb2.ProcessSpec, code: int, said: bytes
) -> None:
    ended, wrote, error = await collected(await sandbox.start(process))
    assert (ended.exit_code, wrote) == (code, b"")
    assert error.startswith(said)


async def test_standard_input_is_written_and_closed(sandbox: RunningSandbox) -> None:
    process = await sandbox.start(argv(b"cat"))
    output = process.output()
    await process.write(b"one")
    assert await anext(output) == (Stream.STDOUT, b"one")
    await process.write(b"two")
    await process.close_stdin()
    await process.close_stdin()
    assert await anext(output) == (Stream.STDOUT, b"two")
    assert [piece async for piece in output] == []
    assert (await process.wait()).exit_code == 0
    await process.write(b"dropped")


async def test_a_signal_ends_a_process(sandbox: RunningSandbox) -> None:
    process = await sandbox.start(argv(b"sleep", b"1000"))
    await process.signal(signal.SIGTERM, descendants=False)
    assert (await process.wait()).signal == signal.SIGTERM
    await process.signal(signal.SIGTERM, descendants=False)


async def test_sigkill_leaves_no_descendant(sandbox: RunningSandbox) -> None:
    # One that left its session and its parent, and one that ignores everything.
    line = "(setsid sleep 1000 &) ; trap '' TERM INT HUP; sleep 1000 & echo up; wait"
    process = await sandbox.start(process_pb2.ProcessSpec(shell=line))
    assert await anext(process.output()) == (Stream.STDOUT, b"up\n")
    other = await sandbox.start(argv(b"sleep", b"500"))
    await process.signal(signal.SIGKILL, descendants=True)
    assert (await process.wait()).signal == signal.SIGKILL
    _, wrote, _ = await shell(sandbox, "ps -eo args=")
    assert b"sleep 1000" not in wrote
    assert b"sleep 500" in wrote
    await other.signal(signal.SIGKILL, descendants=True)


async def test_sigkill_ends_a_storm_of_forks(sandbox: RunningSandbox) -> None:
    line = "b() { b | b & }; b; echo up; while :; do b; done"
    process = await sandbox.start(process_pb2.ProcessSpec(shell=line))
    assert (await anext(process.output()))[0] in Stream
    await process.signal(signal.SIGKILL, descendants=True)
    await process.wait()
    # Killed processes count against the limit until they are reaped, and nothing starts then.
    async with asyncio.timeout(60):
        while (await shell(sandbox, "ps -e | grep -c sh"))[1] != b"1\n":  # the shell that counts
            pass


async def test_what_outlives_a_process_runs_on_and_holds_no_stream(
    sandbox: RunningSandbox,
) -> None:
    ended, wrote, _ = await shell(sandbox, "sleep 1000 & echo started")
    assert (ended.exit_code, wrote) == (0, b"started\n")
    _, wrote, _ = await shell(sandbox, "ps -eo args=")
    assert b"sleep 1000" in wrote


async def test_orphans_are_buried(sandbox: RunningSandbox) -> None:
    await shell(sandbox, "for i in 1 2 3 4 5; do (sleep 0.01 &) ; done; sleep 0.1")
    _, wrote, _ = await shell(sandbox, "ps -eo stat=,args=")
    assert b"defunct" not in wrote


async def test_much_output_arrives_whole(sandbox: RunningSandbox) -> None:
    ended, wrote, said = await shell(sandbox, "seq 1 200000; seq 1 1000 >&2")
    assert ended.exit_code == 0
    assert wrote.splitlines() == [b"%d" % number for number in range(1, 200_001)]
    assert len(said.splitlines()) == 1000


async def test_limits_of_one_process(sandbox: RunningSandbox) -> None:
    limits = {"cpu_s": 7, "file_bytes": 4096, "address_space_bytes": 1 << 30, "open_files": 20}
    _, wrote, _ = await shell(sandbox, "ulimit -t; ulimit -f; ulimit -v; ulimit -n", **limits)
    assert wrote.split() == [b"7", b"8", b"1048576", b"20"]


async def test_users_of_the_image(opened: BubblewrapBackend, sandbox: RunningSandbox) -> None:
    if not opened.capabilities.users:
        with pytest.raises(MeshError, match="SANDBOX_OPTION_UNSUPPORTED"):
            await shell(sandbox, "id", user="root")
        return
    for wanted, seen in (("root", b"0 0"), ("nobody", b"65534 65534"), ("12:34", b"12 34")):
        _, wrote, _ = await shell(sandbox, "echo $(id -u) $(id -g)", user=wanted)
        assert wrote.strip() == seen
    with pytest.raises(MeshError, match="'gone' is not in the image"):
        await shell(sandbox, "id", user="gone")


async def test_root_of_a_sandbox_is_not_the_machines(
    opened: BubblewrapBackend, sandbox: RunningSandbox
) -> None:
    if not opened.capabilities.users:
        pytest.skip("the service is not root")
    line = "chown 5:6 /work && stat -c %u:%g /work; mount -t tmpfs x /work 2>/dev/null && echo no; "
    line += "touch /usr/x; hostname y"
    _, wrote, said = await shell(sandbox, line, user="root")
    assert wrote == b"5:6\n"
    assert len(said.splitlines()) == 2, said


async def test_memory_of_all_is_bounded(opened: BubblewrapBackend) -> None:
    if not opened.capabilities.memory:
        pytest.skip("control groups cannot be used here")
    async with box(opened, resources=sandbox_pb2.Resources(memory_bytes=64 << 20)) as sandbox:
        hog = argv(
            b"python3",
            b"-c",
            b"b = bytearray(200 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1",
        )
        ended, _, _ = await collected(await sandbox.start(hog))
        assert ended.out_of_memory
        assert ended.signal == signal.SIGKILL
        ended, _, _ = await shell(sandbox, "true")
        assert ended.exit_code == 0


async def test_processes_are_bounded(opened: BubblewrapBackend) -> None:
    async with box(opened, resources=sandbox_pb2.Resources(pids=8)) as sandbox:
        _, _, said = await shell(sandbox, "for i in $(seq 20); do sleep 5 & done; echo $!")
        assert b"fork" in said.lower()


async def test_threads_are_counted(sandbox: RunningSandbox) -> None:
    process = await sandbox.start(process_pb2.ProcessSpec(shell="sleep 1000 & echo up; wait"))
    await anext(process.output())
    threads = await asyncio.to_thread(process.threads)
    assert len(threads) == 2
    assert len({thread.thread for thread in threads}) == 2
    await process.signal(signal.SIGKILL, descendants=True)
    await process.wait()
    assert process.threads() == ()


async def test_a_process_that_lowers_its_own_priority_yields(sandbox: RunningSandbox) -> None:
    code = b"import os, time; os.nice(5); print('up', flush=True); time.sleep(1000)"
    for word, yields in ((code, True), (code.replace(b"os.nice(5)", b"0"), False)):
        process = await sandbox.start(argv(b"python3", b"-c", word))
        await anext(process.output())
        threads = await asyncio.to_thread(process.threads)
        assert [thread.yields for thread in threads] == [yields]
        await process.signal(signal.SIGKILL, descendants=True)


async def test_there_is_no_network_but_its_own(sandbox: RunningSandbox) -> None:
    code = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())\n"
        "try: socket.create_connection(('192.0.2.1', 80), 5)\n"
        "except OSError as error: print(error.errno)\n"
    )
    _, wrote, said = await collected(await sandbox.start(argv(b"python3", b"-c", code.encode())))
    assert wrote == b"101\n", said


async def test_nothing_of_the_service_is_seen(sandbox: RunningSandbox) -> None:
    _, wrote, _ = await shell(sandbox, "ps -eo pid=; ls /proc/self/fd; env | wc -l")
    assert b"%d\n" % os.getpid() not in wrote
    _, wrote, _ = await shell(sandbox, "ls /root /home /proc/1/fd 2>&1; cat /proc/1/environ 2>&1")
    assert b"gymmesh" not in wrote
    _, wrote, _ = await collected(await sandbox.start(argv(b"ls", b"/proc/self/fd")))
    assert wrote.split() == [b"0", b"1", b"2", b"3"]  # 3 is the folder that ls reads
