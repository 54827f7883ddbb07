"""The services in other languages: how each is started, and what it says."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.programs import CLIENTS, REPOSITORY

_START_S: Final = 60.0
_STOP_S: Final = 60.0
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Program:
    """A service's program: its command line as tools/test-clients.sh builds it, its kind and name.

    `profile`: what the conformance suite may use there.
    """

    command: list[str]
    kind: str
    name: str
    profile: Path | None = None


PROGRAMS: Final[Mapping[str, Program]] = {
    "go": Program(
        [str(REPOSITORY / ".cache/clients/go/environment")],
        "resource",
        "pantry",
        CLIENTS / "go/examples/environment/conformance.yaml",
    ),
    "typescript": Program(
        ["node", str(CLIENTS / "typescript/.build/examples/environment/main.js")],
        "resource",
        "ts_shop",
        CLIENTS / "typescript/examples/environment/profile.yaml",
    ),
    "go sandbox": Program([str(REPOSITORY / ".cache/clients/go/sandbox")], "sandbox", "boxes"),
    "rust": Program([str(CLIENTS / "rust/target/debug/examples/agent")], "agent", "rust_loop"),
}


@dataclass
class Service:
    """A service that runs."""

    address: str
    process: Process
    log: list[str] = field(default_factory=list)


@asynccontextmanager
async def service(language: str, *arguments: str) -> AsyncIterator[Service]:
    """Starts a language's service, and has it drain at the end; it must end with 0."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAMS[language].command, *arguments, stdout=PIPE, stderr=STDOUT, env=dict(os.environ)
    )
    running = Service("", process)
    listening = asyncio.Event()

    async def listen() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            running.log.append(line.decode(errors="replace"))
            found = _ADDRESS.search(running.log[-1])
            if found and not running.address:
                running.address = found.group()
                listening.set()
        listening.set()

    reader = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(_START_S):
            await listening.wait()
        assert running.address, f"{language} did not start:\n{''.join(running.log)}"
        yield running
        if process.returncode is None:  # else it was told to go down already
            process.terminate()
        await asyncio.wait_for(process.wait(), _STOP_S)
        await reader
        assert process.returncode == 0, "".join(running.log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reader
