"""A run that `gym-cli collect` collects, looked at and steered by `gym-cli runs`."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import open_run
from gymmesh_client.control import find_run, open_runs
from tests.support import endpoint as fake
from tests.support.cli import Bench, Ended, ended, gym, rows_of, solve, start
from tests.support.endpoint import FakeEndpoint, Seen

BOUND_S = 240.0


class Gated:
    """An endpoint that answers once it is opened; until then calls wait."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    def __call__(self, seen: Seen) -> fake.Send:
        reply = solve(seen)

        async def send(*args: Any, **kwargs: Any) -> Any:
            await self.open.wait()
            return await reply(*args, **kwargs)

        return send


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def gate() -> Gated:
    return Gated()


@pytest.fixture
async def bench(tmp_path: Path, gate: Gated) -> AsyncIterator[Bench]:
    async with FakeEndpoint(default=gate) as server:
        yield Bench(tmp_path, server.url, tasks=30)


async def runs(*args: str) -> dict[str, Any]:
    done = await gym("runs", *args, "--json")
    assert done.code == 0, done.err
    shown: dict[str, Any] = json.loads(done.out)
    return shown


async def seen(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The one run, once it is as wanted."""
    async with asyncio.timeout(BOUND_S), open_runs_when_there() as run:
        while True:
            about = await run.get()
            shown = {"in_flight": about.in_flight, "completed": about.completed}
            if wanted(shown):
                return shown
            await asyncio.sleep(0.05)


@asynccontextmanager
async def open_runs_when_there() -> AsyncIterator[Any]:
    while True:
        async with open_runs() as found:
            if found:
                yield find_run(found, "")
                return
        await asyncio.sleep(0.05)


async def result(process: Process) -> tuple[Ended, dict[str, Any]]:
    done = await ended(process)
    return done, json.loads(done.out)


async def test_a_run_is_steered_to_its_end(bench: Bench, gate: Gated) -> None:
    collecting = await start(*bench.collect("--concurrency", "4"))
    await seen(lambda run: run["in_flight"] == 4)
    (listed,) = (await runs("list"))["runs"]
    assert (listed["state"], listed["requested"], listed["in_flight"]) == ("running", 30, 4)
    assert listed["output"] == str(bench.output)
    run_id = listed["run_id"]
    assert (await runs("pause", run_id[:8]))["state"] == "paused"
    wrong = await gym("runs", "set", run_id, "concurrency=9")
    assert wrong.code == 2
    wrong.said("only concurrency=NUMBER can be set, and RUN comes after it")
    await runs("set", "concurrency=8", run_id)
    shown = await runs("show")
    assert (shown["concurrency"], shown["in_flight"]) == (8, 4), "a paused run starts none"
    assert (await runs("resume"))["state"] == "running"
    await seen(lambda run: run["in_flight"] == 8)
    for unknown, words in (("nosuch", f"run {run_id} has no task 'nosuch'"), ("sum-99", "sum-9")):
        refused = await gym("runs", "cancel-task", unknown)
        assert (refused.code, refused.out) == (1, "")
        refused.said(words)
        assert len(refused.err.splitlines()) == 1
    await runs("cancel-task", "sum-1")  # in flight
    await runs("cancel-task", "sum-29")  # not started
    gate.open.set()
    done, summary = await result(collecting)
    assert done.code == 3, done.err
    assert (summary["completed"], summary["failed"], summary["not_finished"]) == (28, 2, 0)
    assert summary["causes"] == {"CANCELLED CALLER_CANCELLED": 2}
    assert {row["task_id"] for row in rows_of(bench.failures)} == {"sum-1", "sum-29"}
    kept = json.loads(bench.output.with_name("rollouts.summary.json").read_text())
    assert kept == summary
    assert kept["concurrency"] == 8
    assert (await runs("list"))["runs"] == []


@pytest.mark.parametrize("command", ["drain", "cancel"])
async def test_a_run_is_ended_from_elsewhere_and_gone_on_with(
    bench: Bench, gate: Gated, command: str
) -> None:
    collecting = await start(*bench.collect("--concurrency", "5"))
    await seen(lambda run: run["in_flight"] == 5)
    assert (await runs(command))["state"] in ("draining", "stopped")
    gate.open.set()
    done, summary = await result(collecting)
    assert done.code == 130
    assert summary["completed"] == (5 if command == "drain" else 0)
    assert summary["ended_early"] == {"drain": "drained", "cancel": "cancelled"}[command]
    more, summary = await result(await start(*bench.collect("--resume")))
    assert more.code == 0, more.err
    assert summary["completed"] == 30
    assert Counter(row["task_id"] for row in rows_of(bench.output)).most_common(1)[0][1] == 1


async def test_a_run_without_control_is_not_found(bench: Bench, gate: Gated) -> None:
    gate.open.set()
    done = await gym(*bench.collect("--no-control", "--limit", "2", "--quiet"))
    assert (done.code, done.err) == (0, "")
    refused = await gym("runs", "show")
    assert refused.code == 1
    refused.said("no active run")


async def test_control_that_cannot_be_had_is_a_warning(bench: Bench, gate: Gated) -> None:
    gate.open.set()
    (bench.output.parent / "runtime").write_text("a file where the folder should be")
    done = await gym(*bench.collect("--limit", "2", "--quiet"))
    assert done.code == 0
    done.said("`gym-cli runs` can't find this run")


async def test_groups_reach_a_trainer_in_another_process(bench: Bench, gate: Gated) -> None:
    gate.open.set()
    collecting = await start(
        *bench.collect("-n", "2", "--stream", "--stream-groups", "3", "--concurrency", "4")
    )
    groups: dict[int, Any] = {}
    async with asyncio.timeout(BOUND_S), open_runs_when_there() as run:
        cursor, ended_well = 0, False
        while not ended_well:
            taken = 0
            async with aclosing(run.groups(cursor, timeout=BOUND_S)) as stream:
                async for group in stream:
                    assert group.cursor not in groups
                    groups[group.cursor], cursor, taken = group, group.cursor, taken + 1
                    if taken == 2:
                        break  # the next stream acknowledges them
                else:
                    ended_well = True
    done, summary = await result(collecting)
    assert done.code == 0, done.err
    assert sorted(groups) == list(range(1, 31))
    assert len({group.task.task_id for group in groups.values()}) == 30
    assert summary["groups"]["finished"] == 30
    with open_run(bench.output) as rows:
        for group in groups.values():
            for repeat, rollout in enumerate(group.rollouts):
                row = rows.get(group.task.task_id, repeat)
                assert row is not None
                assert row["reward"] == rollout.verified.verification.reward


async def test_an_agent_that_stays_away_ends_the_run_with_one_sentence(
    bench: Bench, tmp_path: Path
) -> None:
    # A port that answers nothing: found at the start, gone when rollouts are asked for.
    from tests.support.collecting import CollectAgent, serve_agent

    agent = CollectAgent(pause=lambda event: 0.05)
    async with serve_agent(agent) as port:
        args: list[str | Path] = ["-i", bench.tasks, "-o", bench.output, "--json", "--env", "math"]
        collecting = await start(
            "collect", *args, "--agent", f"127.0.0.1:{port}", "--patience", "1",
            "--concurrency", "2", "-n", "50",
        )  # fmt: skip
        await seen(lambda run: run["completed"] > 3)
    done, summary = await result(collecting)
    assert done.code == 3
    done.said("agent 'scripted' has accepted no rollouts for 1 s", "resume with --resume")
    assert 3 < summary["completed"] < 1500
    assert summary["not_finished"] > 0
    assert len(rows_of(bench.output)) == summary["completed"]
