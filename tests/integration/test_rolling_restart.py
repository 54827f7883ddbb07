"""Every service is replaced while a run goes on, as a Deployment does it: nothing of it shows, but
the verdicts of another version.

The new instance is SERVING before the old one gets SIGTERM, except for the discovery service, whose
registry is in memory: the old one goes before the new one comes, at the same address.
"""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.cli import gym, rows_of, start, write_tasks
from tests.support.noted_tools import CALLS, calls_in
from tests.support.ports import free_port
from tests.support.served import ROOT, Served, serve

BOUND_S: Final = 240.0
#: Time enough for what runs, on a machine that is busy, too.
DRAIN_S: Final = 40.0
CONCURRENCY: Final = 8
#: So many rollouts more have ended before the next service is replaced.
BETWEEN: Final = 2 * CONCURRENCY


#: By the transport between services. The environment and the agent go once more, after all that
#: they know has been replaced.
ORDER: Final[Mapping[str, Sequence[str]]] = {
    "auto": ("agent", "environment", "model", "discovery", "environment", "agent"),
    "plain": ("environment", "model"),
}
SERVICES: Final = {
    "discovery": "registry",
    "model": "policy",
    "environment": "noted",
    "agent": "tool_loop",
}


QUESTION: Final = {
    "responses_create_params": {"input": [{"role": "user", "content": "Write."}]},
}
UPGRADED: Final = """
from tests.support.noted_tools import NotedTools


class Upgraded(NotedTools):
    verifier_version = "{version}"
"""


def mesh_file(
    folder: Path, transport: str, use: str = "tests.support.noted_tools:NotedTools"
) -> Path:
    """A policy that takes its time, and calls the tool of the noted environment twice."""
    call = {"type": "function_call", "name": "write"}
    answers: list[dict[str, object]] = [
        {"output": [{**call, "call_id": word, "arguments": json.dumps({"word": word})}],
         "delay_s": 0.3}
        for word in CALLS
    ]  # fmt: skip
    answers.append({"text": "written", "delay_s": 0.3})
    recording = folder / "answers.jsonl"
    recording.write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    (folder / "noted").mkdir()
    mesh = {
        "models": {"policy": {"backend": "replay", "path": str(recording)}},
        "environments": {
            "noted": {
                "use": use,
                "options": {"folder": str(folder / "noted")},
            }
        },
        "defaults": {"environment": "noted"},
        "mesh": {"drain_s": DRAIN_S, "transport": transport, "metrics": False},
    }
    path = folder / "mesh.yaml"
    path.write_text(json.dumps(mesh))
    return path


@dataclass
class Deployment:
    """The services by kind, one instance of each but while it is replaced."""

    config: Path
    folder: Path
    registry_port: int = field(default_factory=lambda: free_port(taken=set()))
    services: dict[str, Served] = field(default_factory=dict)
    started: list[Served] = field(default_factory=list)

    @property
    def registry(self) -> str:
        """The address of the discovery service, which stays."""
        return f"127.0.0.1:{self.registry_port}"

    async def start(self, kind: str) -> None:
        """Starts an instance, from here on the one of its kind."""
        place = ["--discovery", self.registry]
        if kind == "discovery":
            place = ["--port", str(self.registry_port)]
        number = len(self.started)
        served = await serve(
            kind, SERVICES[kind], "--config", self.config, "--instance", f"pod-{number}", *place,
            log=self.folder / f"{number}-{kind}.log",
        )  # fmt: skip
        self.started.append(served)
        self.services[kind] = served

    async def replace(self, kind: str) -> None:
        """As a Deployment does it: maxSurge 1, or Recreate where there can be but one."""
        old = self.services[kind]
        if kind == "discovery":
            await end(old)
            await self.start(kind)
        else:
            await self.start(kind)
            await end(old)


async def end(served: Served) -> None:
    """SIGTERM, as from Kubernetes, and to its end; it must have had the time that it needs."""
    code = await served.goes_down(DRAIN_S + BOUND_S)
    log = served.log.read_text()
    assert code == 0, log
    assert "Traceback" not in log, log
    assert "open sessions" not in log, log


@asynccontextmanager
async def deployed(config: Path, folder: Path) -> AsyncIterator[Deployment]:
    deployment = Deployment(config, folder)
    try:
        for kind in SERVICES:
            await deployment.start(kind)
        yield deployment
    finally:
        for served in deployment.started:
            await served.kill()


@asynccontextmanager
async def collecting(*args: str | Path) -> AsyncIterator[Process]:
    """A `gym-cli collect` that runs; killed at the end, if it still does."""
    collect = await start("collect", *args, "--json", "-q", cwd=ROOT)
    try:
        yield collect
    finally:
        if collect.returncode is None:
            collect.kill()
            await collect.communicate()


async def until_rows(output: Path, count: int, collect: Process) -> None:
    async with asyncio.timeout(BOUND_S):
        while len(lines_of(output)) < count:
            assert collect.returncode is None, (await collect.communicate())[1].decode()
            await asyncio.sleep(0.05)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


async def test_verdicts_of_a_rolling_upgrade_are_counted_and_told(tmp_path: Path) -> None:
    code = tmp_path / "upgraded.py"
    code.write_text(UPGRADED.format(version="1"))
    config = mesh_file(tmp_path, "auto", f"{code}:Upgraded")
    tasks, output = write_tasks(tmp_path, [QUESTION]), tmp_path / "rows.jsonl"
    async with (
        deployed(config, tmp_path) as deployment,
        collecting(
            "--agent", f"discovery://{deployment.registry}/tool_loop", "-i", tasks, "-o", output,
            "-n", "10000", "--concurrency", str(CONCURRENCY), "--max-attempts", "1",
            "--grace", str(DRAIN_S),
        ) as collect,
    ):  # fmt: skip
        await until_rows(output, BETWEEN, collect)
        code.write_text(UPGRADED.format(version="2"))
        await deployment.replace("environment")
        await until_rows(output, len(lines_of(output)) + BETWEEN, collect)
        collect.send_signal(signal.SIGINT)
        async with asyncio.timeout(DRAIN_S + BOUND_S):
            out, err = await collect.communicate()
    assert collect.returncode == 130, err.decode()
    assert rows_of(tmp_path / "rows.failures.jsonl") == []
    judged = Counter(row["verification"]["version"] for row in rows_of(output))
    assert judged.keys() == {"1", "2"}
    assert json.loads(out)["verdicts"] == {"noted": judged}
    told = (tmp_path / "rows.errors.log").read_text()
    assert (
        "verdicts of noted have version 2, but earlier verdicts of this run have version 1" in told
    )
    profile = await gym("profile", output, cwd=ROOT)
    mixed = f"noted: {judged['1']} of version 1, {judged['2']} of version 2"
    assert f"verdicts have different versions: {mixed}" in profile.out


@pytest.mark.parametrize("transport", ORDER)
async def test_every_service_is_replaced_under_load(tmp_path: Path, transport: str) -> None:
    config = mesh_file(tmp_path, transport)
    tasks = write_tasks(tmp_path, [{"task_id": f"task-{n}", **QUESTION} for n in range(10)])
    output = tmp_path / "rows.jsonl"
    async with (
        deployed(config, tmp_path) as deployment,
        collecting(
            "--agent", f"discovery://{deployment.registry}/tool_loop", "-i", tasks, "-o", output,
            "-n", "10000", "--concurrency", str(CONCURRENCY), "--max-attempts", "1",
            "--grace", str(DRAIN_S),
        ) as collect,
    ):  # fmt: skip
        await until_rows(output, BETWEEN, collect)
        for kind in ORDER[transport]:
            await deployment.replace(kind)
            await until_rows(output, len(lines_of(output)) + BETWEEN, collect)
        collect.send_signal(signal.SIGINT)  # what is in flight ends, and nothing more is started
        async with asyncio.timeout(DRAIN_S + BOUND_S):
            out, err = await collect.communicate()
    assert collect.returncode == 130, err.decode()
    rows, failures = rows_of(output), rows_of(tmp_path / "rows.failures.jsonl")
    assert failures == []
    said = json.loads(out)
    assert said["retries"] == {}, said
    assert {row["attempt"] for row in rows} == {1}
    assert {row["reward"] for row in rows} == {1.0}
    asked = Counter((row["task_id"], row["repeat_index"]) for row in rows)
    assert set(asked.values()) == {1}
    # Each tool call acted once, at the one instance that held the session.
    called = calls_in(tmp_path / "noted")
    assert set(called.values()) == {1}
    assert called.keys() == {(row["rollout_id"], word) for row in rows for word in CALLS}
    # Each instance had its part.
    instances = 1 + ORDER[transport].count("environment")
    assert len(list((tmp_path / "noted").glob("calls-*"))) == instances
