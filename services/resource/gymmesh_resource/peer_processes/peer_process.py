"""A process of another framework's, and calls of its methods.

Invariant: every call ends: with the method's result or a `PeerFault`. Once the process is lost,
for whatever reason, all its calls fail and nothing of it is left; it is never used again.

Messages are lines of JSON on the process's standard streams; `peer_main` describes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh_resource.peer_processes.errors import PeerFault, PeerLost, PeerRaised, PeerTimeout
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.processes import write_to
from gymmesh_runtime.text import mask_secrets, one_line, shortened
from gymmesh_runtime.timers import cancel_and_wait

#: Answers what a script asks the service for, by method and parameters. What it raises, the
#: script gets.
HostAnswer = Callable[[str, dict[str, Any]], Awaitable[Any]]

_LOGGER = logging.getLogger("gymmesh.resource.peers")
_GUARD: Final = Path(__file__).with_name("guard.py")
_MAIN: Final = Path(__file__).with_name("peer_main.py")
# Of this process's environment: what programs need to run, and nothing that may be secret.
_INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
_TAIL_BYTES = 16_384
_SHOWN = 600
_CHUNK = 65_536
# Seconds: for a process to end by itself; for its guard to kill all that it started.
_END_S = 10.0
_GUARD_S = 15.0
# Seconds for a process that is closed to clean up.
_CLOSE_S = 10.0
_MOST_ASKED = 1_024
_MOST_SECRETS = 10_000
_CLOSED = "was closed"


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """How a peer process is started.

    name: for messages. python: the framework's interpreter. script: see `peer_main`.
    env: environment variables beside the few that are inherited (PATH, HOME, the language, where
        certificates are).
    cwd: where it runs. start_s: seconds for it to start and to import the script.
    give_up_s: seconds for a call that was given up to end; a process where it doesn't is hung.
    max_line_bytes: of one message, either way.
    """

    name: str
    python: str
    script: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    start_s: float = 120.0
    give_up_s: float = 20.0
    max_line_bytes: int = 64 << 20


class PeerProcess:
    """One process. Belongs to the event loop that opens it.

    `answer`: for scripts that ask for something; without it, asking breaks the protocol.
    """

    def __init__(self, options: PeerOptions, answer: HostAnswer | None = None) -> None:
        self._options = options
        self._answer = answer
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tail = bytearray()
        # Of calls that ended, too: what they wrote to the error output is shown later.
        self._secrets: OrderedDict[str, None] = OrderedDict()
        self._ending: asyncio.Task[None] | None = None
        #: Why it can't be used any more; None: it can.
        self.lost: PeerLost | None = None

    @property
    def pid(self) -> int:
        """The id of its guard, the group of which it belongs to; 0: it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def error_output(self) -> str:
        """The end of what it wrote to its error output, secrets masked."""
        return self._masked(self._tail.decode("utf-8", "replace"))

    async def open(self) -> None:
        """Start it and wait until the script is imported. Raises `PeerLost` and `PeerRaised`."""
        options = self._options
        guarded = (sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()))
        peer = (options.python, "-u", str(_MAIN), str(options.script), str(options.max_line_bytes))
        try:
            # In a session of its own: Ctrl-C is for the service to handle.
            self._process = await asyncio.create_subprocess_exec(
                *guarded,
                *peer,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=options.cwd,
                env=_environment() | dict(options.env),
                limit=options.max_line_bytes,
                start_new_session=True,
            )
        except OSError as error:
            self.lost = PeerLost(f"{options.name} could not be started: {error}")
            raise self.lost from error
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[0] = ready  # calls count from 1
        self._errors = self._spawn(self._read_errors())
        self._spawn(self._read())
        try:
            async with asyncio.timeout(options.start_s):
                await ready
        except TimeoutError:
            await self._lose(f"did not start within its limit of {options.start_s:g} s")
            raise self._why_lost() from None
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout_s: float,
        secrets: Sequence[str] = (),
    ) -> Any:
        """The answer of the script's method. Cancelling also cancels the call in the script.

        `secrets`: texts in the parameters that are masked in errors. Raises `PeerFault`.
        """
        if self.lost is not None:
            raise self._why_lost()
        number = next(self._numbers)
        line = dumps({"call": number, "method": method, "params": params})
        if len(line) >= (most := self._options.max_line_bytes):
            raise PeerFault(f"a call of {method} has more than {most} bytes")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._remember(secrets)
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(line)
                return await future
        except TimeoutError:
            self._give_up(number, method)
            raise PeerTimeout(f"{self._options.name} took longer than {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._give_up(number, method)
            raise
        except PeerRaised as error:
            raise PeerRaised(error.kind, self._masked(error.message)) from None
        finally:
            if future.done() and not future.cancelled():
                self._calls.pop(number, None)

    async def close(self) -> None:
        """End it and all that it started; bounded, harmless when called twice."""
        await self._lose(_CLOSED)
        await cancel_and_wait(*self._tasks)

    def _give_up(self, number: int, method: str) -> None:
        """Cancel a call in the process, which is killed where it does not confirm that."""
        given_up = self._calls.pop(number, None)
        if self.lost is not None or given_up is None:
            return
        if given_up.done() and not given_up.cancelled():
            return  # the reply came at the same moment
        self._calls[number] = confirmed = asyncio.get_running_loop().create_future()
        self._spawn(self._confirm(number, method, confirmed))

    async def _confirm(self, number: int, method: str, confirmed: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(give_up_s := self._options.give_up_s):
                await self._send(dumps({"cancel": number}))
                await confirmed
        except TimeoutError:
            self._lose_later(
                f"hung: it did not confirm within {give_up_s:g} s that {method} was cancelled"
            )
        except PeerFault:
            pass  # it was cancelled, or ended, or the process is lost
        finally:
            self._calls.pop(number, None)

    async def _send(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None or self.lost is not None:
            raise self._why_lost()
        # A pipe whose other end is gone: the reading side says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            write_to(process.stdin, line + b"\n")
            await process.stdin.drain()

    async def _read(self) -> None:
        assert self._process is not None, "it was started"
        stdout = self._process.stdout
        assert stdout is not None, "a pipe"
        try:
            while True:
                problem = self._receive(await stdout.readuntil(b"\n"))
                if problem:
                    break
        except asyncio.IncompleteReadError:
            problem = await self._end_of()
        except asyncio.LimitOverrunError:
            problem = f"sent a line of more than {self._options.max_line_bytes} bytes"
        self._lose_later(problem)

    def _receive(self, line: bytes) -> str:
        """Handle one message; what breaks the protocol is returned, empty for nothing."""
        try:
            message = loads(line)
        except CodecError:
            message = None
        match message:
            case {"ready": True} if 0 in self._calls:
                _settle(self._calls.pop(0), None)
            case {"failed": {"kind": str(kind), "message": str(text)}} if 0 in self._calls:
                _settle(self._calls.pop(0), PeerRaised(kind, text))
            case {"reply": int(number), "error": {"kind": str(kind), "message": str(text)}} if (
                number in self._calls
            ):
                _settle(self._calls[number], PeerRaised(kind, text))
            case {"reply": int(number), "result": result} if number in self._calls:
                _settle(self._calls[number], result)
            case {"ask": int(number), "method": str(method), "params": dict(params)} if (
                self._answer is not None and len(self._asked) < _MOST_ASKED
            ):
                task = self._spawn(self._reply(number, self._answer, method, params))
                self._asked[number] = task
                task.add_done_callback(lambda _task: self._asked.pop(number, None))
            case {"withdraw": int(number)}:
                if asked := self._asked.get(number):
                    asked.cancel()
            case _:
                shown = self._masked(line[:_SHOWN].decode("utf-8", "replace"))
                return (
                    f"broke the protocol: it sent the line {one_line(shortened(shown.strip(), 80))}"
                )
        return ""

    async def _reply(
        self, number: int, answer: HostAnswer, method: str, params: dict[str, Any]
    ) -> None:
        reply: dict[str, Any]
        try:
            reply = {"result": await answer(method, params)}
        except Exception as error:
            reply = {"error": {"kind": type(error).__name__, "message": str(error)}}
        with contextlib.suppress(PeerFault):
            await self._send(dumps({"answer": number} | reply))

    async def _read_errors(self) -> None:
        assert self._process is not None, "it was started"
        assert self._process.stderr is not None, "a pipe"
        while chunk := await self._process.stderr.read(_CHUNK):
            self._tail += chunk
            del self._tail[:-_TAIL_BYTES]

    async def _end_of(self) -> str:
        """How a process whose output ended came to its end."""
        assert self._process is not None, "it was started"
        if not await _ends_within(self._process, _END_S):
            return "closed its output"
        await asyncio.wait((self._errors,), timeout=_END_S)
        status = self._process.returncode or 0
        killed = f"was killed by signal {status - 128}"
        return killed if status > 128 else f"ended (status {status})"

    def _lose_later(self, problem: str) -> None:
        """As `_lose`, from a task that ends with the process."""
        self._mark_lost(problem)
        if self._ending is None:
            grace_s = _CLOSE_S if problem == _CLOSED else 0.0
            self._ending = asyncio.get_running_loop().create_task(self._end(grace_s))

    async def _lose(self, problem: str) -> None:
        self._lose_later(problem)
        assert self._ending is not None, "just made"
        await asyncio.shield(self._ending)

    def _mark_lost(self, problem: str) -> None:
        """Fail all calls."""
        if self.lost is not None:
            return
        wrote = self.error_output.strip()
        shown = one_line("; ".join(wrote.splitlines()[-5:]))[-_SHOWN:]
        said = f" Its error output ends: {shown}" if shown else ""
        self.lost = PeerLost(f"{self._options.name} {problem}.{said}".rstrip("."))
        if problem != _CLOSED:
            _LOGGER.error("%s %s; its error output ends:\n%s", self._options.name, problem, wrote)
        for future in self._calls.values():
            _settle(future, self._why_lost())
        for task in self._asked.values():
            task.cancel()

    async def _end(self, grace_s: float) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None, "a pipe"
        process.stdin.close()  # the end of its input tells it to clean up and end
        if grace_s and await _ends_within(process, grace_s):
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # its guard kills all and ends
        if not await _ends_within(process, _GUARD_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _why_lost(self) -> PeerLost:
        """A new exception each time: one that is raised twice keeps both tracebacks."""
        return PeerLost(str(self.lost) if self.lost else f"{self._options.name} is not running")

    def _remember(self, secrets: Sequence[str]) -> None:
        self._secrets.update(dict.fromkeys(filter(None, secrets)))
        while len(self._secrets) > _MOST_SECRETS:
            self._secrets.popitem(last=False)

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return mask_secrets(text)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


async def _ends_within(process: Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    if future.done():
        return
    if isinstance(outcome, PeerFault):
        future.set_exception(outcome)
        future.exception()  # a call that was given up does not ask for it
    else:
        future.set_result(outcome)
