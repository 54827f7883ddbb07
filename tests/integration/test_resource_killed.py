"""One of two environment processes is killed under a collector: every rollout has one outcome, and
only those are hurt whose session was there.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh import MeshConfig, MeshSettings, up
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.peers import PeerDirectory
from tests.support.cli import rows_of, start, sums, write_tasks
from tests.unit.runtime.probe import DISCOVERY, instance_at

ROLLOUTS: Final = 400
# So many have ended before the kill.
BEFORE: Final = 40
CONCURRENCY: Final = 20
BOUND_S: Final = 240.0
RUN_S: Final = 300.0
REASONS: Final = {"PEER_UNAVAILABLE", "MUX_BROKEN"}
#: Where a rollout can be hurt by the death of its environment.
BOUNDARIES: Final = {"RESOURCE", "TOOL", "VERIFIER"}


def config_of(folder: Path) -> MeshConfig:
    """A model that calls the calculator once, and takes its time."""
    call = {"type": "function_call", "name": "calculator", "call_id": "call_1"}
    call["arguments"] = '{"expression": "1 + 1"}'
    answers = [{"output": [call], "delay_s": 0.3}, {"text": "2", "delay_s": 0.3}]
    path = folder / "answers.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    return MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(path))},
        mesh=MeshSettings(drain_s=2.0, ready_s=BOUND_S),
    )


@asynccontextmanager
async def another_environment(registry: str) -> AsyncIterator[Process]:
    """A second process of the environment `math`, as the mesh starts them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymmesh_mesh.worker", stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    one = {"kind": "environment", "name": "math", "instance_id": "environment-math-1"}
    one["config"] = base64.b64encode(b"{}").decode()
    first = {"services": [one], "exposed": ["environment-math-1"]}
    options = {"metrics_port": None, "discovery_address": registry, "drain_s": 1.0}
    process.stdin.write(f"{json.dumps(first)}\n{json.dumps(options)}\n".encode())
    try:
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        assert "ready" in json.loads(line)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process.stdin.close()


async def environments(directory: PeerDirectory, registry: str) -> set[str]:
    peer: Any = directory.peer(instance_at(registry, service=DISCOVERY))
    request = discovery_pb2.ListInstancesRequest(name="math")
    return {one.id for one in (await peer.ListInstances(request, timeout=BOUND_S)).instances}


async def test_every_rollout_has_one_outcome(tmp_path: Path) -> None:
    tasks, output = write_tasks(tmp_path, sums(ROLLOUTS)), tmp_path / "rows.jsonl"
    directory = PeerDirectory()
    async with up(config_of(tmp_path)) as mesh:
        registry = mesh.address_of("discovery")
        async with another_environment(registry) as killed:
            assert len(await environments(directory, registry)) == 2
            collect = await start(
                "collect", "--agent", mesh.address_of("agent"), "-i", tasks, "-o", output,
                "--concurrency", str(CONCURRENCY), "--max-attempts", "1", "--json", "-q",
            )  # fmt: skip
            ended = asyncio.create_task(collect.communicate())
            async with asyncio.timeout(BOUND_S):
                while len(lines_of(output)) < BEFORE:  # noqa: ASYNC110  # a file has no event
                    await asyncio.sleep(0.02)
            os.kill(killed.pid, signal.SIGKILL)
            assert collect.returncode is None, "the collection was over before the kill"
            out, err = await asyncio.wait_for(ended, RUN_S)
    await directory.close()
    assert b"Traceback" not in err, err.decode()
    said = json.loads(out)
    rows, failures = rows_of(output), rows_of(tmp_path / "rows.failures.jsonl")
    outcomes = Counter(row["task_id"] for row in [*rows, *failures])
    assert set(outcomes.values()) == {1}
    assert len(outcomes) == ROLLOUTS
    assert len({row["rollout_id"] for row in [*rows, *failures]}) == ROLLOUTS
    assert (said["completed"], said["failed"]) == (len(rows), len(failures))
    # The recorded answer is right for one task alone; no failure is written as a reward.
    assert {row["task_id"] for row in rows if row["reward"]} <= {"sum-1"}
    # It hurt, once, those whose session was there. All others go elsewhere from then on, though the
    # registry lists it for as long as its lease lasts.
    hurt = Counter(said["retries"]) + Counter(said["causes"])
    of_the_kill = {one: count for one, count in hurt.items() if one.split()[1] in REASONS}
    assert 0 < sum(of_the_kill.values()) <= CONCURRENCY, hurt
    assert {one.split()[0] for one in hurt} <= BOUNDARIES
    # A verdict may take too long besides, on a machine that is busy enough.
    assert {one.split()[1] for one in hurt} <= REASONS | {"VERIFIER_TIMEOUT"}
    for one in failures:
        assert one["failure"]["boundary"] in BOUNDARIES
        assert one["failure"]["status"]["reason"] in REASONS | {"VERIFIER_TIMEOUT"}
        assert one["failure"]["retry_safe"]
        assert one["reward"] is None


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
