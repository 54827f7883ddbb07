"""Programs in a sandbox: run to their end, or started to communicate with.

Invariant: a program that ended because its sandbox ended is SANDBOX_LOST, never a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Final, Literal, TypeAlias

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_sandbox_access.connection import SandboxConnection
from gymmesh_sandbox_access.spec import content_bytes

SandboxCommand: TypeAlias = "str | Sequence[str | bytes] | process_pb2.ProcessSpec"
"""A command: a line for `/bin/sh`, a list of a program and its arguments, or the contract's own
message, which has further limits.
"""

StreamName: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = "Callable[[StreamName, bytes], None]"
"""Receives a program's output as it arrives."""


SIGKILL: Final = 9
# Seconds beside a program's own time, for the service to say how it ended.
MARGIN_S: Final = 30.0
# A stream that listens is asked for again after this time, while its caller waits.
_LISTEN_S: Final = 300.0
_MOST_WRITTEN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a program ended, and the part of its output that was kept.

    exit_code: the code if the program exited on its own; otherwise None. cause: a value of the
    contract's ExitCause. signal: the signal that ended the program; 0: none. stdout_dropped,
    stderr_dropped: how many bytes after the kept ones were dropped.
    """

    exit_code: int | None
    cause: process_pb2.ExitCause.ValueType
    signal: int
    stdout: bytes
    stderr: bytes
    stdout_dropped: int
    stderr_dropped: int
    duration_s: float

    @property
    def ok(self) -> bool:
        """Whether the program exited on its own with exit code 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether the program was killed because its time limit expired."""
        return self.cause == process_pb2.EXIT_CAUSE_TIMED_OUT

    @property
    def out_of_memory(self) -> bool:
        """Whether the program was killed at the sandbox's memory limit."""
        return self.cause == process_pb2.EXIT_CAUSE_OUT_OF_MEMORY

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


class Heard:
    """The events of a process so far: its output, and its end if it has ended."""

    def __init__(self, on_output: OnOutput | None = None) -> None:
        self.output: dict[StreamName, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.exit: process_pb2.ProcessExit | None = None
        self._on_output = on_output

    def offset(self, name: StreamName) -> int:
        return len(self.output[name])

    def take(self, name: StreamName, data: bytes) -> None:
        self.output[name] += data
        if self._on_output is not None and data:
            self._on_output(name, data)

    def result(self, connection: SandboxConnection) -> ExecResult:
        """The result. Raises SANDBOX_LOST if the sandbox ended, or if no exit was reported."""
        found = self.exit
        if found is None:
            raise connection.broken("the end of a program was not reported")
        if found.cause == process_pb2.EXIT_CAUSE_SANDBOX_ENDED:
            raise connection.broken("the sandbox ended while a program ran")
        return ExecResult(
            exit_code=found.exit_code if found.HasField("exit_code") else None,
            cause=found.cause,
            signal=found.signal,
            stdout=bytes(self.output["stdout"]),
            stderr=bytes(self.output["stderr"]),
            stdout_dropped=found.stdout_dropped,
            stderr_dropped=found.stderr_dropped,
            duration_s=found.duration_us / 1e6,
        )


def process_spec(
    command: SandboxCommand,
    *,
    timeout_s: float = 0.0,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    user: str = "",
    output_bytes: int = 0,
) -> process_pb2.ProcessSpec:
    """The contract's message for a command. A zero or empty argument leaves `command`'s own
    value.
    """
    spec = process_pb2.ProcessSpec()
    if isinstance(command, process_pb2.ProcessSpec):
        spec.CopyFrom(command)
    elif isinstance(command, str):
        spec.shell = command
    else:
        spec.argv.words.extend(map(content_bytes, command))
    spec.cwd, spec.user = cwd or spec.cwd, user or spec.user
    spec.env.update(env or {})
    spec.timeout_ms = max(round(timeout_s * 1000), 1) if timeout_s else spec.timeout_ms
    spec.stdout_bytes = output_bytes or spec.stdout_bytes
    spec.stderr_bytes = output_bytes or spec.stderr_bytes
    return spec


async def executed(
    connection: SandboxConnection, request: sandbox_pb2.ExecRequest, on_output: OnOutput | None
) -> ExecResult:
    """The result of Exec. If a stream is interrupted, it is sent again from its beginning, and
    the part that already arrived is skipped.
    """
    heard = Heard(on_output)
    again: dict[StreamName, int] = {"stdout": 0, "stderr": 0}

    def asked() -> sandbox_pb2.ExecRequest:
        again["stdout"] = again["stderr"] = 0
        return request

    if request.process.timeout_ms:
        # Also where its caller is gone by then, it ends with its caller's time.
        seconds = connection.within(request.process.timeout_ms / 1000)
        request.process.timeout_ms = max(round(seconds * 1000), 1)
    timeout_s = request.process.timeout_ms / 1000 + MARGIN_S
    process_id = ""
    answers = connection.stream(lambda peer: peer.Exec, asked, timeout_s)
    try:
        async with aclosing(answers):
            async for answer in answers:
                kind = answer.event.WhichOneof("event")
                if kind == "started":
                    process_id = answer.event.started.process_id
                elif kind == "exit":
                    heard.exit = answer.event.exit
                elif kind == "stdout" or kind == "stderr":
                    data: bytes = answer.event.stdout if kind == "stdout" else answer.event.stderr
                    start = again[kind]
                    again[kind] = start + len(data)
                    heard.take(kind, data[max(heard.offset(kind) - start, 0) :])
    except asyncio.CancelledError:
        # The service runs it on for a repeat, which will not come.
        if process_id:
            connection.in_background(ProcessHandle(connection, process_id).kill())
        raise
    return heard.result(connection)


class ProcessHandle:
    """A program that was started to communicate with. One caller at a time reads its output."""

    def __init__(self, connection: SandboxConnection, process_id: str) -> None:
        self._connection = connection
        self.id = process_id
        self._written = 0
        self._writing = asyncio.Lock()
        self._heard = Heard()

    async def write(self, data: str | bytes) -> None:
        """Writes to the program's standard input, and waits until the program or its pipe has
        accepted everything.
        """
        content = content_bytes(data)
        for start in range(0, len(content), _MOST_WRITTEN):
            await self._write(content[start : start + _MOST_WRITTEN], close=False)

    async def close_stdin(self) -> None:
        """Closes the program's standard input; may be called twice."""
        await self._write(b"", close=True)

    async def signal(self, number: int, *, descendants: bool = False) -> None:
        """Sends a signal; does nothing if the program has ended."""
        request = sandbox_pb2.SignalProcessRequest(
            process_id=self.id, signal=number, descendants=descendants
        )
        await self._connection.call(lambda peer: peer.SignalProcess, request)

    async def kill(self) -> None:
        """Kills the program and all its descendants."""
        await self.signal(SIGKILL, descendants=True)

    async def status(self) -> sandbox_pb2.GetProcessResponse:
        """The program's current status, and what its threads have used."""
        request = sandbox_pb2.GetProcessRequest(process_id=self.id)
        answer: sandbox_pb2.GetProcessResponse = await self._connection.call(
            lambda peer: peer.GetProcess, request
        )
        return answer

    async def output(self) -> AsyncGenerator[tuple[StreamName, bytes]]:
        """The program's output from now until its end. No other caller may read meanwhile.

        To stop early, leave it with `aclosing`. Raises SANDBOX_LOST.
        """
        while self._heard.exit is None:
            async with aclosing(self._listen()) as events:
                async for event in events:
                    yield event

    async def wait(self, *, timeout_s: float) -> ExecResult:
        """How the program ended, with all its output that was kept. Raises TimeoutError; the
        program then continues.
        """
        end = monotonic() + timeout_s
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + end - monotonic()):
                async with aclosing(self.output()) as events:
                    async for _ in events:
                        pass
        except TimeoutError:
            raise TimeoutError(f"the program ran longer than {timeout_s:g} s") from None
        return self._heard.result(self._connection)

    async def _write(self, content: bytes, *, close: bool) -> None:
        async with self._writing:
            request = sandbox_pb2.WriteStdinRequest(
                process_id=self.id, offset=self._written, content=content, close=close
            )
            await self._connection.call(lambda peer: peer.WriteStdin, request)
            self._written += len(content)

    async def _listen(self) -> AsyncGenerator[tuple[StreamName, bytes]]:
        """The program's output until a stream ends, or until the maximum time of a stream."""
        heard = self._heard

        def asked() -> sandbox_pb2.WaitProcessRequest:
            return sandbox_pb2.WaitProcessRequest(
                process_id=self.id,
                stdout_offset=heard.offset("stdout"),
                stderr_offset=heard.offset("stderr"),
            )

        answers = self._connection.stream(
            lambda peer: peer.WaitProcess, asked, _LISTEN_S, may_expire=True
        )
        async with aclosing(answers):
            async for answer in answers:
                kind = answer.event.WhichOneof("event")
                if kind == "exit":
                    heard.exit = answer.event.exit
                    return
                if kind == "stdout" or kind == "stderr":
                    data = answer.event.stdout if kind == "stdout" else answer.event.stderr
                    heard.take(kind, data)
                    yield kind, data
