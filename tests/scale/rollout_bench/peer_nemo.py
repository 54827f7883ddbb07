"""NeMo Gym as a contender: python -m … URL, by the Python of its own environment.

Its servers are started as its launcher starts them, each a process with the resolved configuration
in the environment, without the launcher's own set-up of a virtual environment for each, which wants
the network: its openai model server, its simple agent, a resources server of ours, and its head.
Rollouts are bare POSTs to the agent's ``/run``, from this process, which is not counted: NeMo's own
collector would come on top.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any

import aiohttp

from tests.scale.rollout_bench import talk

_READY_S = 180.0
_TASK = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "What is 2 + 3?"}],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add two numbers.",
                "parameters": {
                    "type": "object",
                    "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
                    "required": ["left", "right"],
                    "additionalProperties": False,
                },
                "strict": True,
            }
        ],
    }
}
_HEAD = """
import time
from nemo_gym.server_utils import HeadServer
HeadServer.run_webserver()[2].mark_ready()
time.sleep(1e6)
"""


def _configuration(url: str, ports: dict[str, int]) -> dict[str, Any]:
    """As NeMo resolves it from its YAML files: every server with a host and a port."""

    def server(kind: str, room: str, name: str, **more: Any) -> dict[str, Any]:
        where = {"entrypoint": "app.py", "host": "127.0.0.1", "port": ports[name]}
        return {kind: {room: {**where, **more}}}

    model = {"type": "responses_api_models", "name": "policy_model"}
    resources = {"type": "resources_servers", "name": "adder"}
    endpoint = {"openai_base_url": url, "openai_api_key": "none", "openai_model": "fake"}
    return {
        "head_server": {"host": "127.0.0.1", "port": ports["head_server"]},
        "dry_run": False,
        "policy_model": server("responses_api_models", "openai_model", "policy_model", **endpoint),
        "adder": server("resources_servers", "adder", "adder", domain="agent"),
        "adder_agent": server(
            "responses_api_agents",
            "simple_agent",
            "adder_agent",
            model_server=model,
            resources_server=resources,
        ),
    }


def _free_ports(names: list[str]) -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket()) for name in names}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {name: one.getsockname()[1] for name, one in sockets.items()}


def _commands() -> dict[str, list[str]]:
    def room(name: str) -> str:
        found = util.find_spec(name)
        assert found is not None
        assert found.submodule_search_locations is not None
        return str(Path(next(iter(found.submodule_search_locations))) / "app.py")

    return {
        "head_server": ["-c", _HEAD],
        "policy_model": [room("responses_api_models.openai_model")],
        "adder": [str(Path(__file__).with_name("nemo_adder.py"))],
        "adder_agent": [room("responses_api_agents.simple_agent")],
    }


async def _serving(http: aiohttp.ClientSession, port: int, process: Any, log: Path) -> None:
    async with asyncio.timeout(_READY_S):
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"a server ended with {process.returncode}: {_tail(log)}")
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"http://127.0.0.1:{port}/livez") as reply:
                    if reply.status == 200:
                        return
            await asyncio.sleep(0.1)


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])


async def main(url: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    commands = _commands()
    ports = _free_ports(list(commands))
    configuration = json.dumps(_configuration(url, ports))
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            try:
                logs = []
                for name, command in commands.items():
                    names = {"NEMO_GYM_CONFIG_DICT": configuration, "NEMO_GYM_CONFIG_PATH": name}
                    logs.append(Path(folder) / f"{name}.log")
                    with logs[-1].open("wb") as log:
                        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                            [sys.executable, *command],
                            env={**os.environ, **names},
                            cwd=folder,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                        )
                    processes.append(process)
                for process, port, log_path in zip(processes, ports.values(), logs, strict=True):
                    await _serving(http, port, process, log_path)
                await _drive(http, f"http://127.0.0.1:{ports['adder_agent']}/run", say)
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    try:
                        process.wait(5)
                    except subprocess.TimeoutExpired:
                        process.kill()


async def _drive(http: aiohttp.ClientSession, url: str, say: Any) -> None:
    async def one() -> None:
        async with http.post(url, json=_TASK) as reply:
            text = await reply.text()
            if reply.status != 200 or json.loads(text)["reward"] != 1.0:
                raise RuntimeError(f"a rollout failed: {reply.status} {text[:500]}")

    async def run(rollouts: int, in_flight: int) -> None:
        await talk.spread(rollouts, in_flight, one)

    await one()
    await talk.answer(say, {"version": metadata.version("nemo-gym"), "apart": True}, run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
