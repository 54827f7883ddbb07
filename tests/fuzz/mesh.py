"""A mesh of processes to be fuzzed, as `gym-cli` starts it: how to call it, and what it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from tests.chaos.processes import ROOT
from tests.support import endpoint as fake
from tests.support.certificates import Authority
from tests.support.cli import gym, rows_of, sums, write_tasks
from tests.support.ports import free_port

READY_S: Final = 120.0
_DOWN_S: Final = 60.0
TOKEN: Final = "the-token-of-the-fuzzing-collector"
OF_SERVICES: Final = "the-token-of-the-services"
#: An answer to most questions, and a verdict of a judge on most answers.
_SAID: Final = "4\n[[A=B]]\n[[1]]\n[[YES]]"
#: All environments that need nothing but this machine and a model.
ENVIRONMENTS: Final = (
    "math", "game", "workplace", "calendar", "function_calling", "instruction_following", "mcqa",
    "sql", "string_match", "structured_outputs", "user_simulator", "llm_judge", "web_search",
)  # fmt: skip
#: What the short tests take of them.
FEW: Final = ("math", "game")


@dataclass(frozen=True, slots=True)
class Place:
    """A service that was started; addresses are host and port."""

    kind: str
    name: str
    address: str
    metrics_address: str
    pid: int
    mcp_url: str


@dataclass(frozen=True, slots=True)
class Started:
    """A process of `gym-cli`, and the file with what it says on standard error."""

    name: str
    process: Process
    log: Path

    async def said(self, timeout: float = READY_S) -> Any:
        """The JSON document that it prints. Raises RuntimeError when it ends before."""
        assert self.process.stdout is not None
        text = ""
        async with asyncio.timeout(timeout):
            while line := (await self.process.stdout.readline()).decode():
                text += line
                with contextlib.suppress(ValueError):
                    return json.loads(text)
        raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-4000:]}")

    async def down(self) -> None:
        """Ends it as Ctrl-C does, or kills it."""
        with contextlib.suppress(ProcessLookupError):
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(_DOWN_S):
                await self.process.wait()
        except TimeoutError:
            os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()


async def start(
    name: str, folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
) -> Started:
    """Starts `gym-cli`, which ends when this process does."""
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.launched", "gym-cli", *map(str, arguments),
            stdin=DEVNULL, stdout=PIPE, stderr=log, cwd=ROOT, start_new_session=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
    return Started(name, process, path)


class Mesh:
    """A mesh that runs. `secured`: over TLS, and for callers with a token.

    `started`: its processes, and those that targets start beside it.
    """

    def __init__(self, folder: Path, http_sd: str, authority: Authority | None) -> None:
        self.folder = folder
        self.http_sd = http_sd
        self.authority = authority
        self.places: list[Place] = []
        self.started: list[Started] = []
        self.spare: Place | None = None  # a registry that no service goes by

    @property
    def secured(self) -> bool:
        """Whether callers must be known."""
        return self.authority is not None

    def of(self, kind: str) -> list[Place]:
        """The services of a kind."""
        return [one for one in self.places if one.kind == kind]

    def channel(self, address: str) -> Any:
        """A connection of its own that carries messages of any size, as bytes."""
        options: list[tuple[str, int]] = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        ]
        if self.authority is None:
            return grpc.aio.insecure_channel(address, options=options)
        trusted = grpc.ssl_channel_credentials(self.authority.path.read_bytes())
        return grpc.aio.secure_channel(address, trusted, options=options)

    def metadata(self, token: str = TOKEN) -> list[tuple[str, str]]:
        """What shows who calls: a collector, unless another token is given."""
        return [("authorization", f"Bearer {token}")] if self.secured else []

    def dead(self) -> list[str]:
        """The processes that have ended; `gym-cli up` does when one of its services does."""
        return [
            f"{one.name} ended with exit code {one.process.returncode}"
            for one in self.started
            if one.process.returncode is not None
        ]

    def memory(self) -> dict[str, int]:
        """What each service takes, with the processes that it started, in bytes."""
        pids = {f"{one.kind} {one.name}": one.pid for one in self.places}
        pids |= {one.name: one.process.pid for one in self.started[1:]}
        return {name: _tree_bytes(pid) for name, pid in pids.items()}

    def log_text(self) -> str:
        """What all of them logged."""
        return "".join(one.log.read_text(errors="replace") for one in self.started)

    async def serves(self, folder: Path, tasks: int = 4) -> list[str]:
        """What is wrong with rollouts that are collected now: each must get its reward."""
        folder.mkdir(parents=True, exist_ok=True)
        rows, file = folder / "rows.jsonl", write_tasks(folder, sums(tasks))
        shown: list[str | Path] = []
        if self.authority is not None:
            token = folder / "token"
            token.write_text(TOKEN)
            shown = ["--ca", self.authority.path, "--token-file", token]
        agent = self.of("agent")[0].address
        done = await gym("collect", "-i", file, "-o", rows, "-q", "--agent", agent, *shown)
        rewards = [row["reward"] for row in rows_of(rows)]
        if done.code != 0 or rewards != [1.0] * tasks:
            return [f"rollouts afterwards: exit code {done.code}, {rewards}: {done.err[-2000:]}"]
        return []


@asynccontextmanager
async def running(
    folder: Path, environments: Sequence[str] = ENVIRONMENTS, *, secured: bool = False
) -> AsyncIterator[Mesh]:
    """`gym-cli up` with models of every kind that can be had here, and these environments."""
    async with fake.FakeEndpoint(default=solved) as endpoint:
        forgetting = asyncio.create_task(_forget(endpoint))
        authority = Authority(folder) if secured else None
        http_sd = f"127.0.0.1:{free_port()}"
        mesh = Mesh(folder, http_sd, authority)
        config = folder / "mesh.yaml"
        config.write_text(json.dumps(_configuration(folder, mesh, endpoint.url, environments)))
        up = await start("mesh", folder, "up", "--config", config, "--json", "--logs")
        mesh.started.append(up)
        try:
            mesh.places = [
                Place(
                    one["kind"], one["name"], one["address"], one["metrics_address"], one["pid"],
                    one.get("mcp_url", ""),
                )
                for one in await up.said()
            ]  # fmt: skip
            yield mesh
        finally:
            forgetting.cancel()
            await up.down()


def solved(seen: fake.Seen) -> fake.Send:
    """Does sums with the calculator; says something to all else."""
    messages = seen.body.get("messages") or seen.body.get("input") or [{}]
    last = messages[-1] if isinstance(messages, list) else {}
    words = last.get("content") if isinstance(last, dict) else None
    if isinstance(last, dict) and last.get("role") == "tool":
        return fake.text(str(words)[:100])
    parts = words.split() if isinstance(words, str) else []
    if parts[:2] == ["What", "is"] and parts[-2:] == ["+", "1?"]:
        return fake.answer(calls=[("call_1", "calculator", f'{{"expression": "{parts[2]} + 1"}}')])
    return fake.text(_SAID)


async def _forget(endpoint: fake.FakeEndpoint) -> None:
    """The endpoint keeps what it was asked, which nobody reads here."""
    while True:
        await asyncio.sleep(1.0)
        endpoint.requests.clear()


def _configuration(
    folder: Path, mesh: Mesh, url: str, environments: Sequence[str]
) -> dict[str, Any]:
    recorded = folder / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    bounds = {"model": "fake", "max_retries": 0, "timeout_s": 40.0, "max_conversations": 200}
    models: dict[str, Any] = {
        "policy": {"backend": "chat", "url": url, **bounds},
        "recorded": {"backend": "replay", "path": str(recorded)},
    }
    if len(environments) > len(FEW):
        models["responses"] = {"backend": "responses", "url": url, **bounds}
    each = {"session_idle_s": 20, "session_limit": 200}
    config: dict[str, Any] = {
        "models": models,
        "environments": {name: {"use": name, **each} for name in environments},
        "agents": {"tool_loop": {"max_wall_s": 60.0}},
        "mesh": {"drain_s": 2},
        "discovery": {"xds": True, "http_sd": mesh.http_sd},
    }
    for name in ("user_simulator", "llm_judge"):
        if name in environments:
            roles = ("user", "judge") if name == "user_simulator" else ("judge",)
            config["environments"][name]["models"] = dict.fromkeys(roles, "policy")
    config["environments"]["math"]["mcp"] = {}
    if mesh.authority is not None:
        config["security"] = _security(folder, mesh.authority)
    return config


def _security(folder: Path, authority: Authority) -> dict[str, Any]:
    services, token = folder / "services.token", folder / "collector.token"
    services.write_text(OF_SERVICES)
    token.write_text(TOKEN)
    pair = authority.issue("services")
    return {
        "tls": {
            "authority": str(authority.path),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
            "client_certificates": "none",
        },
        "token_file": str(services),
        "identities": {
            "services": {"token_file": str(services), "may": ["register", "serve"]},
            "collector": {"token_file": str(token), "may": ["collect"]},
        },
    }


def _tree_bytes(pid: int) -> int:
    """The resident memory of a process and those below it."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return total
