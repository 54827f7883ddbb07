"""Keys, header values and passwords of endpoints are sent there, and shown nowhere else.

Endpoints here repeat what they are sent in every error, as some do. What is searched: events,
rollouts, rows, journals and all other files of a run, what commands print, logs, metrics, what a
mesh that runs as processes tells of itself, and the response cache.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import generate_latest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import FailedAttempt, completed_row, failure_row, fold
from gymmesh_mesh import MeshConfig, embedded, up
from gymmesh_responses import params_from_json
from gymmesh_runtime import metrics
from gymmesh_runtime.config import load_config
from tests.support import endpoint as fake
from tests.support.cli import Ended, gym
from tests.support.endpoint import FakeEndpoint, Seen

KEY, HEADER, PASSWORD = "sk-key-0123456789", "team-secret-987654", "pass-word-5555"
JUDGE_KEY = "sk-judge-abcdefgh"
# As a URL's user and password are sent.
PAIR = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
SECRETS = (KEY, HEADER, PASSWORD, PAIR, JUDGE_KEY)
BOUND_S = 240.0

ENVIRONMENT = '''
from gymmesh_resource import Environment, Verdict

class Judged(Environment[None]):
    """Asks a judge."""
    models = ("judge",)

    async def verify(self, session, rollout):
        answer = await session.ask("judge", rollout.text, temperature=0)
        return Verdict(float(answer.text == "yes"), evidence={"said": answer.text})
'''
# What the policy's endpoint does, by what it is asked.
WAYS = {
    "fine": fake.text("an answer"),
    "refused": None,
    "broken": fake.broken_json(),
    "down": fake.reset(),
    "limited": None,
    "failed": None,
}
STATUSES = {"refused": 400, "limited": 429, "failed": 500}


def policy(seen: Seen) -> Any:
    """Answers, or fails in a way that repeats all it was sent."""
    asked = str(seen.body["messages"][-1]["content"])
    if asked in STATUSES:
        said = f"no: {dict(seen.headers)}"[:250]
        return fake.status(STATUSES[asked], message=said, retry_after="0")
    return WAYS[asked]


@pytest.fixture
async def servers() -> AsyncIterator[tuple[FakeEndpoint, FakeEndpoint]]:
    async with (
        FakeEndpoint(default=policy) as first,
        FakeEndpoint(default=fake.text("yes")) as judge,
    ):
        yield first, judge


@pytest.fixture(params=["key", "password"])
def mesh(
    request: pytest.FixtureRequest, tmp_path: Path, servers: tuple[FakeEndpoint, FakeEndpoint]
) -> Path:
    """A mesh whose policy shows who it is by a key, or by what stands in its URL."""
    (tmp_path / "judged.py").write_text(ENVIRONMENT)
    url = servers[0].url
    shows: dict[str, Any] = {"url": url, "api_key": KEY}
    if request.param == "password":
        shows = {"urls": [url.replace("//", f"//me:{PASSWORD}@")]}
    policy = {"backend": "chat", "headers": {"X-Team": HEADER}, "max_retries": 1, "model": "m"}
    judge = {
        "backend": "chat",
        "url": servers[1].url,
        "api_key": JUDGE_KEY,
        "params": {"temperature": 0},
        "cache": {"path": str(tmp_path / "cache")},
    }
    config = {
        "models": {"policy": {**policy, **shows}, "judge": judge},
        "environments": {"judged": {"use": f"{tmp_path}/judged.py:Judged"}},
        "defaults": {"environment": "judged"},
    }
    path = tmp_path / "mesh.yaml"
    path.write_text(json.dumps(config))
    return path


def search(shown: str | bytes, where: str) -> None:
    text = shown if isinstance(shown, str) else shown.decode(errors="replace")
    for secret in SECRETS:
        assert secret not in text, where


def search_files(folder: Path, *leave: Path) -> list[str]:
    """Searches every file, and returns what they are."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in leave:
            search(path.read_bytes(), str(path))
            search(path.name, "a file's name")
            found.append(path.relative_to(folder).parts[0])
    return found


def search_ended(done: Ended, *codes: int) -> None:
    assert done.code in codes, done.err
    search(done.out, "stdout")
    search(done.err, "stderr")


async def test_events_rollouts_rows_logs_and_metrics(
    mesh: Path, servers: tuple[FakeEndpoint, FakeEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = load_config([mesh], [], MeshConfig)
    shown: list[str] = []
    async with asyncio.timeout(BOUND_S), embedded(config) as running:
        instance = await running.directory.pick("gymmesh.agent.v1.AgentService", "tool_loop")
        agent = running.directory.peer(instance)
        outcomes = set()
        for way in WAYS:
            task = rollout_pb2.Task(
                task_id=way, environment="judged", params=params_from_json({"input": way})
            )
            request = agent_pb2.RunRolloutRequest(task=task, rollout_id=f"r-{way}")
            events = [one.event async for one in agent.RunRollout(request, timeout=30.0)]
            rollout = fold(events, f"r-{way}")
            shown += [*map(str, events), str(rollout)]
            outcomes.add(rollout.WhichOneof("outcome"))
            if rollout.WhichOneof("outcome") == "completed":
                shown.append(json.dumps(completed_row(task, rollout)))
            else:
                failed = FailedAttempt(rollout.failed.failure, rollout)
                shown.append(json.dumps(failure_row(task, failed)))
    assert outcomes == {"completed", "failed"}
    assert any("***" in text for text in shown), "an endpoint did repeat what it was sent"
    shown += [generate_latest(metrics.REGISTRY).decode(), caplog.text]
    shown += [str(record.__dict__) for record in caplog.records]
    for text in shown:
        search(text, text[:80])
    sent = servers[0].requests[-1].headers
    assert sent["X-Team"] == HEADER
    assert sent["Authorization"] in (f"Bearer {KEY}", f"Basic {PAIR}")
    assert servers[1].requests[-1].headers["Authorization"] == f"Bearer {JUDGE_KEY}"


async def test_files_and_what_commands_print(mesh: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    rows = [{"task_id": way, "responses_create_params": {"input": way}} for way in WAYS]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "out" / "rows.jsonl"
    output.parent.mkdir()
    common = ("--config", mesh, "--input", tasks, "--output", output)
    search_ended(await gym("collect", *common, cwd=tmp_path), 3)
    search_ended(await gym("run", "--prompt", "failed", "--config", mesh, cwd=tmp_path), 0, 1, 3)
    search_ended(await gym("run", "--prompt", "fine", "--config", mesh, cwd=tmp_path), 0)
    search_ended(await gym("models", "list", "--config", mesh, "--json"), 0)
    search_ended(await gym("models", "check", "--config", mesh, "--prompt", "failed"), 1, 3)
    wrong = await gym("models", "list", "--config", mesh, "--set", "models.policy.timeout_s=x")
    search_ended(wrong, 2)
    files = search_files(tmp_path, mesh, tmp_path / "judged.py", tasks)
    # The answers of the judge were kept, and the run has its files.
    assert {"cache", "out"} <= set(files)
    assert output.read_bytes().count(b"\n") == 1


async def test_a_mesh_of_processes(mesh: Path) -> None:
    config = load_config([mesh], [], MeshConfig)
    lines: list[str] = []
    async with asyncio.timeout(BOUND_S), up(config, echo=lines.append) as running:
        agent = next(one for one in running.infos if one.kind == "agent")
        done = await gym("run", "--agent", agent.address, "--prompt", "failed", "--env", "judged")
        search_ended(done, 0, 1, 3)
        async with aiohttp.ClientSession() as session:
            for one in running.infos:
                # What every user of the machine can read.
                search(Path(f"/proc/{one.pid}/cmdline").read_bytes(), "a command line")
                async with session.get(f"http://{one.metrics_address}/metrics") as page:
                    search(await page.read(), f"metrics of {one.name}")
    search("\n".join(lines), "logs of services")
    search(repr(config), "the configuration")
