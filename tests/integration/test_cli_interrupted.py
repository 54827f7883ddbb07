"""gym-cli collect that is interrupted, stopped or killed: every finished row stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gymmesh_client import open_run
from tests.support import endpoint as fake
from tests.support.cli import BOUND_S, Bench, ended, gym, rows_of, solve, start
from tests.support.endpoint import FakeEndpoint, Seen


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(default=solve) as server:
        yield server


def finished(output: Path) -> int:
    """How many rollouts are completed: a row counts once the journal says so."""
    with open_run(output) as run:
        return run.completed


async def interrupted(bench: Bench, endpoint: FakeEndpoint, *more: str) -> Process:
    """A collect of which some rollouts are done and the others hang."""
    some_done = asyncio.Event()

    def mostly_stuck(seen: Seen) -> fake.Send:
        text = json.dumps(seen.body)
        if any(f"What is {number} " in text for number in range(4)):
            return solve(seen)
        some_done.set()
        return fake.hang()

    endpoint.default = mostly_stuck
    process = await start(*bench.collect("--concurrency", "6", *more))
    await asyncio.wait_for(some_done.wait(), BOUND_S)
    async with asyncio.timeout(BOUND_S):
        while finished(bench.output) < 4:  # noqa: ASYNC110 (another process writes)
            await asyncio.sleep(0.02)
    return process


async def test_ctrl_c_keeps_every_finished_row(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    bench = Bench(tmp_path, endpoint.url, tasks=8)
    process = await interrupted(bench, endpoint, "--grace", "0.3")
    os.killpg(process.pid, signal.SIGINT)
    done = await ended(process)
    assert done.code == 130
    done.said("all finished rows are on disk")
    about = json.loads(bench.output.with_name("rollouts.run.json").read_text())
    assert (about["state"], about["counts"]["completed"]) == ("ended early", 4)
    before = bench.output.read_bytes()
    assert {row["task_id"] for row in rows_of(bench.output)} == {f"sum-{n}" for n in range(4)}
    assert rows_of(bench.failures) == []
    assert json.loads(done.out)["not_finished"] == 4
    endpoint.default = solve
    again = await gym(*bench.collect("--resume"))
    assert again.code == 0, again.err
    assert bench.output.read_bytes().startswith(before)
    assert sorted(row["task_id"] for row in rows_of(bench.output)) == [f"sum-{n}" for n in range(8)]


async def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    bench = Bench(tmp_path, endpoint.url, tasks=8)
    process = await interrupted(bench, endpoint, "--grace", "3600")
    os.killpg(process.pid, signal.SIGINT)
    await asyncio.sleep(0.3)
    assert process.returncode is None
    ending = asyncio.create_task(ended(process))
    while not ending.done():  # two that come before it looks are one
        os.killpg(process.pid, signal.SIGINT)
        await asyncio.wait({ending}, timeout=15)
    done = await ending
    assert done.code == 130
    assert "Traceback" not in done.err
    assert len(rows_of(bench.output)) == 4


async def test_killed_and_resumed(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    bench = Bench(tmp_path, endpoint.url, tasks=8)
    process = await interrupted(bench, endpoint)
    os.killpg(process.pid, signal.SIGKILL)
    await ended(process)
    before = bench.output.read_bytes()
    with bench.output.open("ab") as file:
        file.write(before[:100])  # a torn write
    endpoint.default = solve
    changed = await gym(*bench.collect("--resume", "--set", "agents.tool_loop.max_steps=3"))
    changed.said("the configuration (agents.tool_loop.max_steps was 8 and is 3) changed")
    about = json.loads(bench.output.with_name("rollouts.run.json").read_text())
    assert about["state"] == "running"  # nobody could say otherwise
    again = await gym(*bench.collect("--resume", "-n", "2"))
    assert again.code == 0, again.err
    assert bench.output.read_bytes().startswith(before)
    about = json.loads(bench.output.with_name("rollouts.run.json").read_text())
    assert about["state"] == "finished"
    assert [bool(one["ended_at"]) for one in about["sessions"]] == [False, True]
    assert about["counts"]["completed"] == about["counts"]["requested"] == 16
    assert about["services"]["models"]["policy"][0]["endpoint_model"] == "fake"
    assert about["versions_seen"]["environments"].keys() == {"math"}
    keys = [(row["task_id"], row["repeat_index"]) for row in rows_of(bench.output)]
    assert sorted(keys) == sorted((f"sum-{n}", repeat) for n in range(8) for repeat in range(2))
