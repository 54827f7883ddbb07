"""One process of a mesh: started, given its services, watched and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from gymmesh_mesh.layout import ProcessPlan
from gymmesh_runtime.processes import ending_with_us, write_to
from gymmesh_runtime.serve import ServeOptions
from gymmesh_runtime.telemetry import LogFormat
from gymmesh_runtime.timers import cancel_and_wait

_LOG_TAIL: Final = 20
_KILL_AFTER_S: Final = 5.0
# Between the end of its output and its own end; on a busy machine that takes long.
_STATUS_S: Final = 10.0


class StartError(Exception):
    """A service could not be started, or ended. The message has the service and the reason."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A running service. Addresses are host and port, or empty.

    A service without an address is called only from its own process. `mcp_url`: the URL at which an
    environment's tools are offered over MCP. `protocols_url`: the URL at which the environment is
    served with other frameworks' protocols. Both may be empty.
    """

    kind: str
    name: str
    address: str
    metrics_address: str
    pid: int
    mcp_url: str = ""
    protocols_url: str = ""


class ServiceProcess:
    """A worker process with the services of one plan. Each line of its log is passed to `echo`."""

    def __init__(self, plan: ProcessPlan, process: Process, echo: Callable[[str], None]) -> None:
        self.plan = plan
        self.process = process
        self._tail: deque[str] = deque(maxlen=_LOG_TAIL)
        self._log = asyncio.create_task(self._follow_log(echo))

    @classmethod
    async def start(
        cls, plan: ProcessPlan, log_format: LogFormat, echo: Callable[[str], None]
    ) -> ServiceProcess:
        """Start the process. It does not serve yet."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gymmesh_mesh.worker",
            stdin=PIPE, stdout=PIPE, stderr=PIPE,
            # Ctrl-C in the terminal is for the parent, which then stops its workers in order.
            start_new_session=True,
        )  # fmt: skip
        started = cls(plan, process, echo)
        told = {"services": plan.specs, "exposed": plan.exposed, "log_format": log_format}
        started._send(told)
        return started

    async def serve(self, options: ServeOptions) -> list[ServiceInfo]:
        """Let the process serve, and wait until it is SERVING. Raises StartError."""
        self._send(replace(options, ports=self.plan.ports))
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        answer = json.loads(line) if line else {}
        if "ready" not in answer:
            raise StartError(await self.why_it_ended(answer.get("failed")))
        ready = answer["ready"]
        return [
            ServiceInfo(spec.kind, spec.name, pid=self.process.pid, **ready[spec.instance_id])
            for spec in self.plan.specs
        ]

    @property
    def title(self) -> str:
        """The process as messages name it."""
        if len(self.plan.specs) == 1:
            (spec,) = self.plan.specs
            return f"the {spec.kind} service '{spec.name}'"
        return f"the process '{self.plan.name}'"

    async def why_it_ended(self, reason: str | None = None) -> str:
        """One paragraph that explains why the process is not running."""
        if reason:
            return f"{self.title} could not start: {reason}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_S):
                await self.process.wait()
                await asyncio.shield(self._log)
        tail = "\n".join(self._tail) or "(it logged nothing)"
        status = self.process.returncode
        return f"{self.title} ended with status {status}; the end of its log:\n{tail}"

    async def stop(self, drain_s: float) -> None:
        """Send SIGTERM, and SIGKILL if the process does not end in time."""
        await end(self.process, drain_s + _KILL_AFTER_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        await cancel_and_wait(self._log)

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it said before its end tells more
            write_to(self.process.stdin, msgspec.json.encode(message) + b"\n")

    async def _follow_log(self, echo: Callable[[str], None]) -> None:
        async for text in log_lines(self.process):
            self._tail.append(text)
            # A line of JSON says itself where it is from.
            echo(text if text.startswith("{") else f"[{self.plan.name}] {text}")


async def start_beside(*command: str, stderr: int = DEVNULL) -> Process:
    """Start a program that ends with this process. Raises StartError."""
    try:
        return await asyncio.create_subprocess_exec(
            *ending_with_us(command),
            stdin=DEVNULL, stdout=DEVNULL, stderr=stderr, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise StartError(f"can't run '{command[0]}': {error.strerror}") from None


async def end(process: Process, seconds: float) -> None:
    """End a process: SIGTERM, then SIGKILL if it does not end within this many seconds."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


async def log_lines(process: Process) -> AsyncIterator[str]:
    """The lines that a process writes to its standard error, a pipe."""
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:  # longer than the reader's limit, which drops it
            line = b"(a line of the log was too long to show)\n"
        if not line:
            return
        yield line.decode(errors="replace").rstrip()
