"""NeMo Gym's servers beside a scripted policy, for the tests of this folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from aiohttp import web

from tests.bridges.nemo_gym.policy import PlannedPolicy

_HOST: Final = "127.0.0.1"
_START_S: Final = 900.0
#: Words that wordle takes; the wheel has no list.
WORDS: Final = ("chump", "crane", "slate", "house", "chime", "clump")


_NAMES: Final = (
    "relay",
    "own_model",
    "model",
    "weather",
    "strings",
    "turns",
    "wordle",
    "own_agent",
    "agent",
    "own_turns",
    "own_wordle",
    "own_episodes",
    "episodes",
)


@dataclass
class Gym:
    """Where NeMo Gym's servers are, by name; `relay`: where one of its models calls the policy."""

    ports: dict[str, int]
    policy: PlannedPolicy
    policy_url: str
    process: asyncio.subprocess.Process

    def url(self, name: str) -> str:
        return f"http://{_HOST}:{self.ports[name]}"

    @property
    def relay(self) -> str:
        return f"{_HOST}:{self.ports['relay']}"


def _reference(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "name": name}


def configuration(ports: dict[str, int], policy_url: str) -> dict[str, Any]:
    """NeMo Gym's, with agents that call the policy itself (`own_…`) and by the bridge."""

    def served(kind: str, folder: str, name: str, **more: Any) -> dict[str, Any]:
        return {
            kind: {folder: {"host": _HOST, "port": ports[name], "entrypoint": "app.py", **more}}
        }

    def model(name: str, url: str) -> dict[str, Any]:
        return served(
            "responses_api_models",
            "openai_model",
            name,
            openai_base_url=url,
            openai_api_key="none",
            openai_model="policy",
        )

    def agent(folder: str, name: str, resources: str, by: str, **more: Any) -> dict[str, Any]:
        return served(
            "responses_api_agents",
            folder,
            name,
            resources_server=_reference("resources_servers", resources),
            model_server=_reference("responses_api_models", by),
            **more,
        )

    def episodes(name: str, by: str) -> dict[str, Any]:
        return served(
            "environment_servers",
            "single_agent_turn",
            name,
            resources_server=_reference("resources_servers", "strings"),
            agent_server=_reference("responses_api_agents", by),
            resources_tool_transports=["direct_http"],
            cleanup_timeout_seconds=30,
        )

    def resources(folder: str, name: str, **more: Any) -> dict[str, Any]:
        return served("resources_servers", folder, name, domain="other", **more)

    return {
        "own_model": model("own_model", policy_url),
        "model": model("model", f"http://{_HOST}:{ports['relay']}/v1"),
        "weather": resources("example_mcp_weather", "weather", expose_tools_over_mcp=True),
        "strings": resources("string_match", "strings"),
        "turns": resources("example_multi_turn_gymnasium", "turns"),
        "wordle": resources("wordle", "wordle"),
        "own_agent": agent("simple_agent", "own_agent", "weather", "own_model"),
        "agent": agent("simple_agent", "agent", "weather", "model"),
        "own_turns": agent("gymnasium_agent", "own_turns", "turns", "own_model", max_steps=20),
        "own_wordle": agent("gymnasium_agent", "own_wordle", "wordle", "own_model", max_steps=20),
        "own_episodes": episodes("own_episodes", "own_agent"),
        "episodes": episodes("episodes", "agent"),
    }


@contextmanager
def free_ports(names: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """A port for each name, which nothing else gets while the block is entered."""
    sockets = {name: socket.create_server((_HOST, 0)) for name in names}
    try:
        yield {name: one.getsockname()[1] for name, one in sockets.items()}
    finally:
        for one in sockets.values():
            one.close()


@asynccontextmanager
async def gym_servers(python: Path, folder: Path) -> AsyncIterator[Gym]:
    """NeMo Gym's servers in one process, and the policy in this one."""
    policy = PlannedPolicy()
    runner = web.AppRunner(policy.app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, _HOST, 0).start()
    policy_url = f"http://{_HOST}:{runner.addresses[0][1]}/v1"
    with free_ports(_NAMES) as ports:
        pass
    words = folder / "words.txt"
    words.write_text("\n".join(WORDS))
    with (folder / "servers.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            python,
            Path(__file__).parent / "nemo_servers.py",
            json.dumps(configuration(ports, policy_url)),
            words,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
    # To the end, so that nothing that the servers print holds them up.
    ready = asyncio.Event()
    reading = asyncio.create_task(_read(process, ready))
    try:
        async with asyncio.timeout(_START_S):
            await ready.wait()
        if reading.done():
            raise RuntimeError(f"NeMo Gym's servers did not start; see {folder}/servers.log")
        yield Gym(ports, policy, policy_url, process)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await reading
        await runner.cleanup()


async def _read(process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
    """Sets the event at the line `ready`, and at the end."""
    assert process.stdout is not None
    async for line in process.stdout:
        if line.strip() == b"ready":
            ready.set()
    ready.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gym(bridge_python: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gym]:
    """One of all for the tests of a file that do it no harm."""
    async with gym_servers(bridge_python, tmp_path_factory.mktemp("gym")) as servers:
        yield servers
