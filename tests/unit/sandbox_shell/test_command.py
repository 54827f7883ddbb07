"""Programs that a command of this machine starts, and what no shell can start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import SandboxSpec, Stream
from gymmesh_sandbox.backends.image_shell import CommandProgram, ProgramLost, ShellSandbox

LONG_S = 60.0


async def said(program: CommandProgram) -> dict[Stream, bytes]:
    found = {Stream.STDOUT: b"", Stream.STDERR: b""}
    async with asyncio.timeout(LONG_S):
        while (read := await program.read()) is not None:
            found[read[0]] += read[1]
    return found


async def test_its_streams_and_its_exit_code() -> None:
    program = await CommandProgram.start("/bin/sh", "-c", "cat; echo wrong >&2; exit 7")
    for _ in range(4):
        await program.send(b"\xff" * 100_000)
    await program.end_stdin()
    assert await said(program) == {Stream.STDOUT: b"\xff" * 400_000, Stream.STDERR: b"wrong\n"}
    assert program.exit_code() == 7
    await program.close()


async def test_a_signal_is_the_exit_code_of_a_shell() -> None:
    program = await CommandProgram.start("/bin/sh", "-c", "kill -9 $$")
    await said(program)
    assert program.exit_code() == 137
    await program.close()


async def test_what_is_no_longer_read_is_an_error_of_the_connection() -> None:
    program = await CommandProgram.start("/bin/sh", "-c", "exit 0")
    await said(program)
    with pytest.raises(OSError):  # noqa: PT011, PT012  # which one, and when, is up to the loop
        for _ in range(100):
            await program.send(b"x" * 100_000)
    await program.close()
    await program.close()


async def test_closing_ends_a_command_that_goes_on() -> None:
    program = await CommandProgram.start("/bin/sh", "-c", "exec >&- 2>&-; exec sleep 600")
    with pytest.raises(ProgramLost):
        program.exit_code()
    await program.close()
    assert program.exit_code() == 137


class UnheldSandbox(ShellSandbox):
    """Nothing holds its programs: they are this machine's."""

    async def start_program(self, argv: Sequence[str]) -> CommandProgram:
        return await CommandProgram.start(*argv)

    async def still_runs(self) -> bool:
        return True

    async def remove(self) -> None:
        pass


async def test_more_words_than_the_kernel_takes_are_refused() -> None:
    spec = SandboxSpec("sb-1", "tests", "host", sandbox_pb2.Resources(), sandbox_pb2.Network())
    sandbox = UnheldSandbox(spec, backend="unheld", image="host", image_digest="")
    await sandbox.prepare()
    try:
        # One word may have 128 KiB.
        words = process_pb2.Argv(words=[b"true", b"x" * (256 << 10)])
        with pytest.raises(MeshError) as refused:
            await sandbox.start(process_pb2.ProcessSpec(argv=words))
        assert refused.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    finally:
        await sandbox.end()
