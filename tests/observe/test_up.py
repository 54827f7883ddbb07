"""gym-cli up --observe: a real Prometheus beside a mesh, with its services and rules."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.observe.alerts import alerts
from deploy.observe.prometheus_api import Server
from deploy.observe.rules import recordings
from tests.observe.scene import until
from tests.support.cli import BOUND_S, ended, gym, start, sums, write_tasks
from tests.unit.runtime.probe import until as until_soon

LISTED = {"discovery", "model", "resource", "agent"}


def command(folder: Path) -> list[str]:
    """It, with a mesh that needs no model."""
    answers = folder / "answers.jsonl"
    answers.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}) + "\n")
    (folder / "mesh.yaml").write_text(
        "models: {policy: {backend: replay, path: answers.jsonl}}\nmesh: {drain_s: 2}\n"
    )
    return ["up", "--config", "mesh.yaml", "--observe"]


@asynccontextmanager
async def up(folder: Path, *options: str | Path) -> AsyncIterator[tuple[Process, str]]:
    """The command, and what it printed when all was ready; it must end well when it is told to."""
    process = await start(*command(folder), *options, cwd=folder)
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(2 * BOUND_S):
            # The last line of the text, and the one line of JSON.
            while "ready; " not in said and not said.startswith("["):
                line = await process.stdout.readline()
                assert line, said
                said += line.decode()
        yield process, said
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        assert done.code == 0, done.err
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def scraped(server: Server) -> set[str]:
    """The kinds of the services that answer."""
    return {one.labels["kind"] for one in server.now('up{job="gymmesh"} == 1')}


@pytest.mark.parametrize("layout", ["mesh", "embedded"])
async def test_it_watches_the_mesh_and_ends_with_it(
    layout: str, prometheus_binary: str, tmp_path: Path
) -> None:
    options = ["--prometheus", prometheus_binary, "--layout", layout]
    async with up(tmp_path, *options) as (_, said):
        found = re.search(r"^Prometheus: http://(127\.0\.0\.1:\d+)$", said, re.MULTILINE)
        assert found, said
        server = Server(found[1])
        # Embedded, all are one process, which is called an agent: that is what others call it for.
        await until(lambda: scraped(server) == (LISTED if layout == "mesh" else {"agent"}))
        rules = [one for group in server.get("rules")["groups"] for one in group["rules"]]
        assert len(rules) == len(recordings()) + len(alerts())
        await collects(said, tmp_path)
        await until(lambda: server.now("sum(gymmesh_rollouts_total) == 3"), "the rollouts")
    await until_soon(lambda: not answers(server), 30)


async def collects(said: str, folder: Path) -> None:
    agent = re.search(r"--agent (\S+)", said)
    assert agent
    tasks = write_tasks(folder, sums(3))
    done = await gym("collect", "-i", tasks, "-o", folder / "out.jsonl", "--agent", agent[1])
    assert done.code == 0, done.err


def answers(server: Server) -> bool:
    try:
        server.now("up")
    except OSError:
        return False
    return True


async def test_the_mesh_goes_on_without_it(prometheus_binary: str, tmp_path: Path) -> None:
    """What watches is not what works."""
    options: list[str | Path] = ["--prometheus", prometheus_binary, "--json"]
    async with up(tmp_path, *options) as (process, said):
        services: list[dict[str, Any]] = json.loads(said)
        (watching,) = (one for one in services if one["kind"] == "prometheus")
        assert {one["kind"] for one in services} >= {"discovery", "agent"}
        os.kill(watching["pid"], signal.SIGKILL)
        (agent,) = (one["address"] for one in services if one["kind"] == "agent")
        await collects(f"--agent {agent}", tmp_path)
        assert process.returncode is None


async def test_a_prometheus_that_does_not_start(tmp_path: Path) -> None:
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\necho 'unknown long flag' >&2\nexit 3\n")
    program.chmod(0o755)
    process = await start(*command(tmp_path), "--prometheus", program, cwd=tmp_path)
    done = await ended(process)
    assert done.code == 1
    done.said("Prometheus ended with status 3", "unknown long flag")
