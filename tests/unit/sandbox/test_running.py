"""How programs are run: input, output, endings, talks, cancelling, closing."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest

from gymmesh_resource.sandbox import (
    BubblewrapSandbox,
    Ending,
    Limits,
    Program,
    Result,
    SandboxError,
    SandboxUnavailable,
    UnsandboxedPrograms,
    program_in,
)
from gymmesh_resource.sandbox.bench import measure
from gymmesh_resource.sandbox.bubblewrap import find_python
from tests.unit.sandbox.machine import (
    BRIEF,
    TIGHT,
    descendants,
    groups,
    left_behind,
    opened,
    require_bubblewrap,
)

require_bubblewrap()


async def test_input_output_and_exit_code() -> None:
    source = (
        "import sys\nsys.stdout.write(sys.stdin.read()[::-1])\nsys.stderr.write('e')\nsys.exit(3)"
    )
    async with opened() as sandbox:
        result = await sandbox.run(program_in("python", source, b"abc"), TIGHT)
    assert (result.ending, result.exit_code) == (Ending.EXITED, 3)
    assert (result.stdout, result.stderr) == (b"cba", b"e")
    assert not result.succeeded


async def test_large_input_that_nobody_reads() -> None:
    async with opened() as sandbox:
        result = await sandbox.run(program_in("shell", "echo done", b"x" * 1_000_000), TIGHT)
    assert result.stdout == b"done\n"


async def test_large_input_and_output() -> None:
    data = bytes(range(256)) * 2000
    limits = Limits(wall_s=60, output_bytes=len(data))
    async with opened() as sandbox:
        result = await sandbox.run(program_in("shell", "cat", data), limits)
    assert result.succeeded
    assert result.stdout == data


async def test_a_signal_is_told_as_128_and_its_number() -> None:
    async with opened() as sandbox:
        result = await sandbox.run(program_in("python", "import os\nos.abort()"), TIGHT)
    assert (result.ending, result.exit_code) == (Ending.EXITED, 134)


async def test_a_source_that_is_no_text() -> None:
    async with opened() as sandbox:
        result = await sandbox.run(program_in("python", "print('\ud800')"), TIGHT)
    assert result.exit_code == 1
    assert b"SyntaxError" in result.stderr


async def test_a_command_that_is_not_there() -> None:
    async with opened() as sandbox:
        result = await sandbox.run(Program(("/usr/bin/no-such-command",)), TIGHT)
    assert (result.ending, result.exit_code) == (Ending.EXITED, 127)


async def test_more_programs_than_slots() -> None:
    async with opened(concurrency=2) as sandbox:
        results = await asyncio.gather(
            *(sandbox.run(program_in("shell", f"echo {n}"), TIGHT) for n in range(8))
        )
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]


async def test_a_talk() -> None:
    async with opened() as sandbox, sandbox.start(Program(("/bin/cat",)), TIGHT) as running:
        await running.write(b"hello")
        assert await running.read_exactly(5) == b"hello"
        running.kill()
        with pytest.raises(EOFError):
            await running.read_exactly(1)


async def test_cancelling_leaves_nothing() -> None:
    chance = random.Random(4)
    before = descendants()
    async with opened(concurrency=2) as sandbox:
        for _ in range(12):
            task = asyncio.create_task(sandbox.run(program_in("shell", "sleep 600"), TIGHT))
            await asyncio.sleep(chance.uniform(0, 0.05))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await sandbox.run(program_in("shell", "echo ok"), TIGHT)).stdout == b"ok\n"
    assert not await left_behind(before)
    assert not groups()


async def test_two_sandboxes_of_a_service_keep_apart() -> None:
    source = program_in("shell", "sleep 0.2; echo done")
    async with opened(concurrency=2) as first:
        async with opened(concurrency=2) as second:
            talks = asyncio.gather(*(first.run(source, TIGHT) for _ in range(2)))
            while not talks.done():  # whose ends clean up, each in its own slot
                await second.run(program_in("shell", "true"), TIGHT)
        assert [result.stdout for result in await talks] == [b"done\n"] * 2
        assert (await first.run(source, TIGHT)).stdout == b"done\n"


@pytest.mark.parametrize("turns", [0, 1, 3, None])
async def test_closing_ends_what_runs_or_starts(turns: int | None) -> None:
    before = descendants()
    async with opened() as sandbox:
        begun = asyncio.Event()

        async def run() -> Result:
            program = Program(("/bin/sh", "-c", "echo up; sleep 600"))
            async with sandbox.start(program, Limits(wall_s=600)) as running:
                await running.read_exactly(3)
                begun.set()
                return await running.communicate(b"")

        task = asyncio.create_task(run())
        if turns is None:
            await begun.wait()
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        await sandbox.close()
        try:
            assert not (await task).succeeded
        except (SandboxError, EOFError):
            assert not begun.is_set()
        with pytest.raises(SandboxError, match="not open"):
            await sandbox.run(program_in("shell", "true"), TIGHT)
    assert not await left_behind(before)


@pytest.mark.parametrize("made", [BubblewrapSandbox, UnsandboxedPrograms])
async def test_the_end_of_the_spawner_is_no_doing_of_the_program(
    made: type[BubblewrapSandbox | UnsandboxedPrograms],
) -> None:
    before = descendants()
    sandbox = made()
    await sandbox.open()
    try:
        for _ in range(2):  # it is started again
            async with sandbox.start(Program(("/bin/cat",)), TIGHT) as running:
                await running.write(b"a")
                assert await running.read_exactly(1) == b"a"
                os.kill(sandbox.spawner_pid, signal.SIGKILL)
                with pytest.raises(SandboxError, match="was killed"):
                    await running.read_exactly(1)
                with pytest.raises(SandboxError, match="was killed"):
                    await running.communicate(b"")
        assert (await sandbox.run(program_in("shell", "echo ok"), TIGHT)).stdout == b"ok\n"
    finally:
        await sandbox.close()
    assert not await left_behind(before)


async def test_no_bubblewrap_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="run `apt-get install bubblewrap`"):
        await BubblewrapSandbox().open()


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(SandboxUnavailable, match="set the option 'python'"):
        find_python("/no/such/python")


async def test_an_interpreter_that_does_not_run() -> None:
    with pytest.raises(SandboxUnavailable, match="does not run in the sandbox"):
        await BubblewrapSandbox(python="/usr/bin/env").open()
    assert not groups()


async def test_without_a_sandbox() -> None:
    before = descendants()
    programs = UnsandboxedPrograms(concurrency=1)
    await programs.open()
    try:
        source = "import sys\nprint(sys.stdin.read(), flush=True)\nopen('left', 'w')"
        result = await programs.run(program_in("python", source, b"in"), TIGHT)
        assert result.succeeded
        assert result.stdout == b"in\n"
        endless = await programs.run(program_in("shell", "sleep 6000 & sleep 6000"), BRIEF)
        assert endless.ending is Ending.TIMED_OUT
        loud = await programs.run(program_in("shell", "yes"), TIGHT)
        assert loud.ending is Ending.OUTPUT_LIMIT
    finally:
        await programs.close()
    assert not await left_behind(before)


@pytest.mark.parametrize("made", [BubblewrapSandbox, UnsandboxedPrograms])
async def test_a_program_that_is_left_as_it_starts_is_ended(
    made: type[BubblewrapSandbox | UnsandboxedPrograms],
) -> None:
    sandbox = made()
    await sandbox.open()
    try:
        async with asyncio.timeout(50):  # a kill that is lost is waited for longer
            for _ in range(8):
                async with sandbox.start(Program(("/bin/sleep", "600")), TIGHT):
                    pass
    finally:
        await sandbox.close()


async def test_the_benchmark_runs() -> None:
    figures = await measure(executions=4, in_flight=2, language="shell")
    assert figures.executions == 4
    assert figures.median_ms > 0
