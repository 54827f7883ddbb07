"""gym-cli's processes as forks of one that has imported it; see tests/support/fork_server.py."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_SCRIPT: Final = Path(__file__).with_name("fork_server.py")
# Read when Python starts or gRPC is imported: a fork would keep the server's.
_READ_AT_IMPORT: Final = ("PYTHON", "GRPC_", "LANG", "LC_", "LD_", "TZ")


class ForkedProcess(Process):
    """A process that the fork server started; its parent waits for it and says how it ended."""

    def __init__(
        self,
        answers: _Answers,
        stdout: asyncio.StreamReader | None = None,
        stderr: asyncio.StreamReader | None = None,
    ) -> None:
        # Not super's, which wants a transport of a child of this process.
        self._answers = answers
        self.pid = answers.pid.result()
        self.stdin, self.stdout, self.stderr = None, stdout, stderr

    @property
    def returncode(self) -> int | None:
        code = self._answers.code
        return code.result() if code.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._answers.code)

    async def communicate(
        self, input: bytes | bytearray | memoryview | None = None
    ) -> tuple[bytes, bytes]:
        assert input is None
        assert self.stdout is not None
        assert self.stderr is not None
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, err

    def send_signal(self, signal: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, signal)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Answers(asyncio.Protocol):
    """What the fork server says of one process: its id, then its exit code."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.pid: asyncio.Future[int] = loop.create_future()
        self.code: asyncio.Future[int] = loop.create_future()
        self._said = b""

    def data_received(self, data: bytes) -> None:
        self._said += data
        if b"\n" in self._said and not self.pid.done():
            self.pid.set_result(int(self._said.split()[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            _, code = map(int, self._said.split())
        except ValueError:
            error = exc or ConnectionError(f"the fork server has ended, and said {self._said!r}")
            if not self.pid.done():
                self.pid.set_exception(error)
            self.code.set_exception(error)
            self.code.exception()  # looked at, so that asyncio does not log it
        else:
            self.code.set_result(code)


async def fork(
    arguments: Sequence[str],
    folder: Path | None,
    environment: Mapping[str, str],
    log: int | None = None,
) -> ForkedProcess | None:
    """Starts gym-cli in a session of its own; None where the environment wants a fresh process.

    log: the descriptor of a file that its stderr goes to; by default it is a pipe.
    """
    if _read_at_import(environment) != _read_at_import(_server()[1]):
        return None
    nothing = os.open(os.devnull, os.O_RDONLY)
    out, err = os.pipe(), os.pipe() if log is None else (None, os.dup(log))
    ours = [nothing, out[1], err[1]]
    answers = await _started(ours, arguments, folder, environment)
    for descriptor in ours:
        os.close(descriptor)
    stdout = await _reader(out[0])
    stderr = None if err[0] is None else await _reader(err[0])
    await answers.pid
    return ForkedProcess(answers, stdout, stderr)


async def fork_on_terminal(
    arguments: Sequence[str], folder: Path | None, terminal: int
) -> ForkedProcess:
    """Starts gym-cli in a session of its own, with a terminal's descriptor in place of pipes."""
    answers = await _started([terminal] * 3, arguments, folder, os.environ)
    await answers.pid
    return ForkedProcess(answers)


async def _started(
    stdio: Sequence[int],
    arguments: Sequence[str],
    folder: Path | None,
    environment: Mapping[str, str],
) -> _Answers:
    """Sends the fork server its request."""
    ours, theirs = socket.socketpair()
    socket.send_fds(_server()[0], [b"+"], [*stdio, theirs.fileno()])
    theirs.close()
    request = {
        "arguments": list(arguments),
        "folder": str(folder or Path.cwd()),
        "environment": dict(environment),
    }
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_unix_connection(_Answers, sock=ours)
    transport.write(json.dumps(request).encode() + b"\n")
    return answers


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith(_READ_AT_IMPORT)}


@functools.cache
def _server() -> tuple[socket.socket, dict[str, str]]:
    """This process's fork server and the environment that it began with."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, str(_SCRIPT), str(theirs.fileno())],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
        start_new_session=True,
    )  # fmt: skip
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, dict(os.environ)
