"""`gym-cli up` and `gym-cli collect` with a real Consul agent, as docs/how-to/consul.md shows
them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.consul.agent import Agent
from tests.support.cli import gym, rows_of, start, sums, write_tasks
from tests.support.docs import ROOT, read_page
from tests.support.ports import free_port

SHOWN: Final = "127.0.0.1:8500"
BOUND_S: Final = 120.0


@asynccontextmanager
async def up(*args: str | Path, cwd: Path) -> AsyncIterator[Process]:
    """A `gym-cli up` that has said that it is ready."""
    process = await start("up", *args, cwd=cwd)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            async for line in process.stdout:
                if line.startswith(b"ready"):
                    break
            else:
                raise AssertionError((await process.stderr.read()).decode())
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 0


async def test_what_the_page_shows(consul: Agent, tmp_path: Path) -> None:
    page = read_page(ROOT / "docs" / "how-to" / "consul.md")
    for name, text in page.files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = [
        shlex.split(line.removeprefix("$ gym-cli ").replace(SHOWN, consul.address))
        for line in page.text.splitlines()
        if line.startswith("$ gym-cli ")
    ]
    (started, collected) = shown
    async with up(*started[1:], cwd=tmp_path):
        assert len(await consul.passing()) == 3
        done = await gym(*collected, cwd=tmp_path)
        assert done.code == 0, done.err
    assert rows_of(tmp_path / "rollouts.jsonl")
    assert await consul.passing() == set()  # all gave their places back


@pytest.mark.parametrize("layout", ["embedded", "cell"])
async def test_the_other_layouts(layout: str, consul: Agent, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}))
    tasks, output = write_tasks(tmp_path, sums(3)), tmp_path / "rows.jsonl"
    sets = ["models.policy.backend=replay", f"models.policy.path={path}"]
    options = [word for one in sets for word in ("--set", one)]
    if layout == "cell":
        options += ["--cells", "2"]
    where = ["--discovery", f"consul://{consul.address}", "--layout", layout]
    async with up(*options, *where, cwd=tmp_path):
        assert len(await consul.passing()) == (2 if layout == "cell" else 1)
        done = await gym(
            "collect", "--agent", f"consul://{consul.address}/", "-i", tasks, "-o", output
        )
        assert done.code == 0, done.err
    assert len(rows_of(output)) == 3


async def test_a_discovery_service_beside_consul(consul: Agent, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}))
    port = free_port()
    sets = ["models.policy.backend=replay", f"models.policy.path={path}"]
    sets.append(f"mesh.discovery_port={port}")
    options = [word for one in sets for word in ("--set", one)]
    async with up(*options, "--discovery", f"consul://{consul.address}", cwd=tmp_path):
        assert len(await consul.passing()) == 3
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()


async def test_an_agent_is_started_where_there_is_none(binary: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}))
    port = free_port()
    sets = ["models.policy.backend=replay", f"models.policy.path={path}"]
    sets.append(f"discovery.consul.address=127.0.0.1:{port}")
    options = [word for one in sets for word in ("--set", one)]
    started = Path(binary).resolve()
    async with up(*options, "--discovery", "consul", "--consul-binary", started, cwd=tmp_path):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/status/leader HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await reader.read()
        writer.close()
        await writer.wait_closed()
    with pytest.raises(OSError):  # noqa: PT011  # it ended with the command
        await asyncio.open_connection("127.0.0.1", port)


async def test_the_advertised_host_stands_in_consul(consul: Agent, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}))
    sets = ["models.policy.backend=replay", f"models.policy.path={path}"]
    options = [word for one in sets for word in ("--set", one)]
    where = ["--discovery", f"consul://{consul.address}", "--host", "0.0.0.0"]
    where += ["--insecure"]
    async with up(*options, *where, "--advertise", "127.0.0.1", cwd=tmp_path):
        assert len(await consul.passing()) == 3
        listed = await consul.get("/v1/agent/services")
        assert {one["Address"] for one in listed.values()} == {"127.0.0.1"}
        assert {one["Meta"]["gymmesh-metrics"].split(":")[0] for one in listed.values()} == {
            "127.0.0.1"
        }
