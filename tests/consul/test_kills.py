"""Two of each service in Consul: one of each kind, and Consul itself, die in a collection."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_mesh import discovered, read_target
from gymmesh_runtime.peers import PeerDirectory
from tests.consul.agent import Agent
from tests.support.cli import ended, rows_of, start, sums, write_tasks

pytestmark = pytest.mark.timeout(600)

ROLLOUTS: Final = 2000
RIGHT_S: Final = 2.0
BOUND_S: Final = 120.0
KINDS: Final = {
    "agent": ("gymmesh.agent.v1.AgentService", "tool_loop"),
    "model": ("gymmesh.model.v1.ModelService", "policy"),
    "environment": ("gymmesh.resource.v1.ResourceService", "math"),
}


class Mesh:
    """A `gym-cli up` that starts again what dies."""

    def __init__(self, process: Process, services: list[dict[str, Any]]) -> None:
        self.process = process
        self._services = services

    def kill(self, kind: str) -> str:
        """Ends a service with SIGKILL, and returns its address.

        `gym-cli up` is stopped before, and starts the service again once it goes on: a service that
        is started again between two of Consul's checks would never be seen to be gone.
        """
        (found,) = [one for one in self._services if one["kind"] == kind]
        self.process.send_signal(signal.SIGSTOP)
        os.kill(found["pid"], signal.SIGKILL)
        return str(found["address"])

    def resume(self) -> None:
        """Lets `gym-cli up` go on."""
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def mesh(consul: Agent, config: Path) -> AsyncIterator[Mesh]:
    process = await start(
        "up", "--config", config, "--discovery", f"consul://{consul.address}", "--restart", "3",
        "--json",
    )  # fmt: skip
    assert process.stdout is not None
    drain: asyncio.Task[bytes] | None = None
    try:
        text = ""
        while True:
            line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
            assert line, (await ended(process)).err
            text += line.decode()
            try:
                services = json.loads(text)
                break
            except ValueError:
                continue
        assert process.stderr is not None
        drain = asyncio.create_task(process.stderr.read())
        yield Mesh(process, services)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), BOUND_S)
        if drain is not None:
            await drain
    assert process.returncode == 0


class View:
    """What a watcher of Consul sees, and how long it takes to be right."""

    def __init__(self, directory: PeerDirectory) -> None:
        self._directory = directory
        self.took: dict[str, float] = {}

    def addresses(self, kind: str) -> set[str]:
        service, name = KINDS[kind]
        return {one.address for one in self._directory.serving(service, name)}

    def lacks(self, kind: str, address: str) -> bool:
        """Whether the instance at this address takes no calls."""
        return address not in self.addresses(kind)

    def whole(self) -> bool:
        """Whether two of each kind serve."""
        return all(len(self.addresses(kind)) == 2 for kind in KINDS)

    async def right(self, what: str, holds: Callable[[], bool]) -> None:
        """Waits until the view says so, and notes how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(BOUND_S):
            while not holds():  # noqa: ASYNC110  # a view has no event for this
                await asyncio.sleep(0.01)
        self.took[what] = time.monotonic() - began


async def passing(consul: Agent, count: int) -> None:
    """Until Consul itself says that so many pass."""
    async with asyncio.timeout(BOUND_S):
        while len(await consul.passing()) != count:  # noqa: ASYNC110  # Consul has no event for it
            await asyncio.sleep(0.02)


def write_mesh(folder: Path) -> Path:
    """A mesh whose model calls the calculator once, and takes its time."""
    call = {"type": "function_call", "name": "calculator", "call_id": "call_1"}
    call["arguments"] = '{"expression": "1 + 1"}'
    answers = [{"output": [call], "delay_s": 0.4}, {"text": "2", "delay_s": 0.4}]
    (folder / "answers.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    config = folder / "mesh.yaml"
    config.write_text(
        f"models:\n  policy: {{backend: replay, path: {folder / 'answers.jsonl'}}}\n"
        "mesh: {drain_s: 3}\n"
    )
    return config


async def test_every_rollout_has_one_outcome_whatever_dies(consul: Agent, tmp_path: Path) -> None:
    config = write_mesh(tmp_path)
    tasks, output = write_tasks(tmp_path, sums(ROLLOUTS)), tmp_path / "rows.jsonl"
    target = f"consul://{consul.address}/tool_loop"
    async with AsyncExitStack() as stack:
        meshes = [await stack.enter_async_context(mesh(consul, config)) for _ in range(2)]
        opened = discovered(read_target(target, DiscoveryConfig()))
        view = View((await stack.enter_async_context(opened)).directory)
        await view.right("all six are there", view.whole)
        collect = await start(
            "collect", "--agent", target, "-i", tasks, "-o", output, "--concurrency", "40",
            "--max-attempts", "5", "--json", "-q",
        )  # fmt: skip
        whole = asyncio.create_task(ended_within(collect))
        await asyncio.sleep(3.0)
        for number, kind in enumerate(KINDS):
            mesh_of_it = meshes[number % 2]
            try:
                killed = mesh_of_it.kill(kind)
                await view.right(f"{kind} killed", partial(view.lacks, kind, killed))
            finally:
                mesh_of_it.resume()
            await passing(consul, 6)  # started again, at the same address
            await view.right(f"{kind} started again", view.whole)
        assert collect.returncode is None, "the collection was over before all had died"
        await consul.kill()
        await asyncio.sleep(2.0)
        assert view.whole()  # the last view serves
        await consul.start()
        await passing(consul, 6)
        await view.right("Consul started again", view.whole)
        assert collect.returncode is None, "the collection was over before all had died"
        code, said = await whole
    print(json.dumps({"view_s": view.took, "collect": said}))
    rows = rows_of(output)
    failures = rows_of(tmp_path / "rows.failures.jsonl")
    outcomes = Counter(row["task_id"] for row in [*rows, *failures])
    assert set(outcomes.values()) == {1}
    assert len(outcomes) == ROLLOUTS
    assert len({row["rollout_id"] for row in rows}) == len(rows)
    assert said["completed"] == len(rows)
    assert said["completed"] + said["failed"] == ROLLOUTS
    # An infrastructure failure is never a reward; the recorded answer is right for one task alone.
    assert {row["reward"] for row in rows} <= {0.0, 1.0}
    assert [row["task_id"] for row in rows if row["reward"]] in (["sum-1"], [])
    assert code == (3 if failures else 0)
    assert not failures, failures[:3]
    assert said["retried"] > 0  # the kills did hit
    assert {one.split()[-1] for one in said["retries"]} <= {"PEER_UNAVAILABLE", "MUX_BROKEN"}
    assert max(view.took.values()) <= RIGHT_S, view.took


async def ended_within(process: Process) -> tuple[int, dict[str, Any]]:
    out, err = await asyncio.wait_for(process.communicate(), 400)
    assert b"Traceback" not in err, err.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(out)
