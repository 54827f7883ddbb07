"""Adapters of other projects' capture gateways, each in a process of its own Python."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_conformance.gateway import (
    AdapterError,
    CaughtCall,
    CaughtSample,
    SampledTokens,
    Script,
    scripted_endpoint,
)

_HERE: Final = Path(__file__).parent
_START_S: Final = 300.0  # imports of a large project on a busy machine
_ANSWER_S: Final = 60.0
_MAX_LINE: Final = 64_000_000


@dataclass(frozen=True)
class Peer:
    """A gateway to compare.

    Attributes:
        name: as the table has it.
        package: on PyPI.
        version: what must be installed.
        file: the program that hosts it, beside this file.
        environment: the folder of its interpreter, below .cache.
        dialects: the APIs that it offers to programs.
        streams: whether it streams answers.
        arguments: of its program.
    """

    name: str
    package: str
    version: str
    file: str
    environment: str
    dialects: tuple[str, ...]
    streams: bool = True
    arguments: tuple[str, ...] = ()


class PeerGateway:
    """The adapter of a gateway that runs in another process, as long as its block lasts."""

    def __init__(self, peer: Peer, cache: Path, log: Path) -> None:
        """cache: the folder .cache; log: takes what the process writes to standard error."""
        self.peer = peer
        self._python = cache / peer.environment / "bin" / "python"
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> PeerGateway:
        """Start the process. Raises AdapterError, also for another version than asked for."""
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[_PeerRollout]:
        """Open one; the model of the gateway is the suite's endpoint."""
        if self._process is None:
            await self._start()
        async with scripted_endpoint(script) as upstream:
            said = await self._asked({"open": {"upstream": upstream, "program": program}})
            rollout = _PeerRollout(self, script, said["url"], said["key"])
            try:
                yield rollout
            finally:
                if not rollout.is_over:
                    await self._abandoned()

    async def finished(self) -> dict[str, Any]:
        """What the open rollout captured. Raises AdapterError."""
        return await self._asked({"finish": {}})

    async def _abandoned(self) -> None:
        """The session broke: the next one gets a process of its own where this one is stuck."""
        try:
            await self.finished()
        except AdapterError:
            await self._stop()

    async def _start(self) -> None:
        if not self._python.exists():
            raise AdapterError(f"{self.peer.package} is not installed: {self._python} is missing")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                _HERE / self.peer.file,
                *self.peer.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_MAX_LINE,
                cwd=self._log.parent,  # some write files of their own into it
                env={**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"},
            )
        found = (await self._heard(_START_S))["ready"]
        if found != self.peer.version:
            raise AdapterError(
                f"{self.peer.package} {found} is installed, {self.peer.version} is compared"
            )

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def _asked(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        return await self._heard()

    async def _heard(self, within_s: float = _ANSWER_S) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise AdapterError(f"{self.peer.file} said nothing for {within_s:g} s") from None
        if not line:
            raise AdapterError(f"{self.peer.file} ended; {self._log} has what it said")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise AdapterError(f"{self.peer.file}: {said['error']}")
        return said


class _PeerRollout:
    """A rollout at such a gateway."""

    def __init__(self, gateway: PeerGateway, script: Script, url: str, key: str) -> None:
        self.url = url
        self.key = key
        self.is_over = False
        self._gateway = gateway
        self._script = script
        self._samples: list[CaughtSample] | None = None

    async def finish(self) -> list[CaughtCall]:
        """The captured calls."""
        said = await self._gateway.finished()
        self.is_over = True
        if said.get("samples") is not None:
            self._samples = [_sample(one) for one in said["samples"]]
        if "sampled" in said:
            self._script.sampled[:] = [_tokens(one) for one in said["sampled"]]
        return [_call(one) for one in said["calls"]]

    async def samples(self) -> list[CaughtSample] | None:
        """What a trainer trains on; None where the gateway keeps no tokens."""
        return self._samples


def _call(said: dict[str, Any]) -> CaughtCall:
    tokens = said.pop("tokens", None)
    return CaughtCall(**said, tokens=_tokens(tokens) if tokens else None)


def _tokens(said: dict[str, Any]) -> SampledTokens:
    return SampledTokens(
        tuple(said["prompt"]), tuple(said["output"]), tuple(said.get("logprobs") or ())
    )


def _sample(said: dict[str, Any]) -> CaughtSample:
    logprobs = said.get("logprobs")
    return CaughtSample(
        tuple(said["ids"]),
        tuple(bool(one) for one in said["mask"]),
        tuple(logprobs) if logprobs else None,
    )
