"""A run whose endpoint, agent or environment is not there, or refuses everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.support import endpoint as fake
from tests.support.cli import BOUND_S, Bench, ended, gym, rows_of, solve, start
from tests.support.endpoint import FakeEndpoint, Seen


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(default=solve) as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, endpoint: FakeEndpoint) -> Bench:
    return Bench(tmp_path, endpoint.url, tasks=40)


@asynccontextmanager
async def mesh_of(bench: Bench) -> AsyncIterator[str]:
    """A mesh of processes; gives its agent's address."""
    mesh = await start("up", "--json", *bench.mesh)
    try:
        assert mesh.stdout is not None
        ready = json.loads(await asyncio.wait_for(mesh.stdout.readline(), BOUND_S))
        yield next(one["address"] for one in ready if one["kind"] == "agent")
    finally:
        mesh.send_signal(signal.SIGINT)
        await ended(mesh)


async def until_asked(endpoint: FakeEndpoint, times: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while len(endpoint.requests) < times:
            endpoint.arrived.clear()
            await endpoint.arrived.wait()


def over(agent: str, bench: Bench, *more: str) -> list[str | Path]:
    asked: list[str | Path] = ["-i", bench.tasks, "-o", bench.output, "--agent", agent]
    return ["collect", "--json", *asked, *more]


@pytest.mark.parametrize("remote", [False, True], ids=["embedded", "over --agent"])
@pytest.mark.parametrize("away_s", [1.0, 6.0])
async def test_an_endpoint_that_goes_away_and_comes_back_fails_no_rollout(
    bench: Bench, endpoint: FakeEndpoint, remote: bool, away_s: float
) -> None:
    at_once = 0
    back, wide = False, asyncio.Event()

    async def slowly(request: web.Request, seen: Seen) -> web.StreamResponse:
        nonlocal at_once
        at_once += 1
        if back and at_once >= 12:
            wide.set()
        try:
            if back and not wide.is_set():
                # So long that a collector on a busy machine sends more meanwhile, if it wants to.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wide.wait(), 1.0)
            else:
                await asyncio.sleep(0.02)
            return await solve(seen)(request, seen)
        finally:
            at_once -= 1

    endpoint.default = slowly
    pace = ["--num-repeats", "6", "--concurrency", "16", "--max-attempts", "1"]
    port = urlsplit(endpoint.url).port
    assert port is not None

    async def collect_through_it(command: list[str | Path]) -> None:
        nonlocal back
        process = await start(*command)
        await until_asked(endpoint, 100)
        await endpoint.stop()
        await asyncio.sleep(away_s)
        back = True
        await endpoint.start(port)
        done = await ended(process)
        assert done.code == 0, done.err
        summary = json.loads(done.out)
        assert (summary["completed"], summary["failed"]) == (240, 0)
        assert len(rows_of(bench.output)) == 240
        # One for each in flight when it went away, and few probes.
        assert summary["retried"] <= 40, summary["retries"]
        # Soon the run is as wide again as it was.
        assert wide.is_set()

    if remote:
        async with mesh_of(bench) as agent:
            await collect_through_it(over(agent, bench, *pace))
    else:
        await collect_through_it(bench.collect(*pace))


async def test_an_endpoint_that_stays_away_ends_the_run_with_one_sentence(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    await endpoint.stop()
    done = await gym(*bench.collect("--max-attempts", "1", "--patience", "2", "--quiet"))
    assert done.code == 1
    done.said("ended early: model 'policy' was unreachable for 2 s", "is unreachable", "--resume")
    # And with one more at once, of all the calls that failed meanwhile.
    began = [one for one in done.err.splitlines() if one.startswith("gym-cli: the endpoint of")]
    assert len(began) == 1, done.err
    assert "connection refused" in began[0]
    summary = json.loads(done.out)
    assert (summary["completed"], summary["failed"], summary["not_finished"]) == (0, 0, 40)
    assert not rows_of(bench.failures)
    again = next(line for line in done.err.splitlines() if "retry with: " in line)
    port = urlsplit(endpoint.url).port
    assert port is not None
    await endpoint.start(port)
    resumed = await gym(*shlex.split(again.partition("with: ")[2])[1:])
    assert resumed.code == 0, resumed.err
    assert len(rows_of(bench.output)) == 40


async def test_a_credential_that_is_refused_ends_the_run_after_a_few(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    endpoint.default = fake.status(401)
    done = await gym(*bench.collect("--num-repeats", "5", "--concurrency", "4"))
    assert done.code == 1
    done.said("20 rollouts in a row failed for the same reason", "refused the credential")
    summary = json.loads(done.out)
    assert 20 <= summary["failed"] <= 24
    assert summary["not_finished"] == 200 - summary["failed"]
    done.said("gym-cli collect --resume --output ", " --retry failed")
    endpoint.default = solve
    resumed = await gym(
        *bench.collect("--num-repeats", "5", "--resume", "--retry", "failed", "--max-alike", "0")
    )
    assert resumed.code == 0, resumed.err
    assert len(rows_of(bench.output)) == 200


async def test_a_run_ends_after_the_failures_that_it_may_have(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    def some_refused(seen: Seen) -> fake.Send:
        return fake.status(400) if "What is 2" in json.dumps(seen.body) else solve(seen)

    endpoint.default = some_refused
    done = await gym(*bench.collect("--concurrency", "1", "--max-failures", "3"))
    assert done.code == 3
    done.said("ended early: the number of failed rollouts reached the limit of 3")
    summary = json.loads(done.out)
    assert summary["failed"] == 3
    assert summary["not_finished"] > 0


async def test_an_environment_that_the_mesh_does_not_have_is_said_at_once(bench: Bench) -> None:
    async with mesh_of(bench) as agent:
        done = await gym(*over(agent, bench, "--env", "maths", "--quiet"))
        assert done.code == 1
        done.said("no resource service named 'maths'", "did you mean 'math'?")
        summary = json.loads(done.out)
        assert summary["retried"] == 0
        assert (summary["failed"], summary["not_finished"]) == (0, 40)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999"])
async def test_an_agent_that_cannot_be_reached_is_said_at_once(bench: Bench, address: str) -> None:
    done = await gym(*over(address, bench))
    assert done.code == 1
    done.said(f"no agent at {address}", "HOST:PORT")
    assert len(done.err.splitlines()) == 1


async def test_another_service_than_an_agent_is_said_at_once(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    address = urlsplit(endpoint.url).netloc
    done = await gym(*over(address, bench))
    assert done.code == 1
    done.said(f"no agent at {address}")
