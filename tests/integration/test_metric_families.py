"""Each process exports the families of the services that it has, as the page groups them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from asyncio.subprocess import DEVNULL
from functools import partial
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import FailedAttempt, run_attempt
from gymmesh_mesh import MeshConfig, MeshSettings, remote, up
from gymmesh_model.config import ModelConfig
from gymmesh_responses import new_message
from tests.support.cli import sums, write_tasks
from tests.support.docs import ROOT, read_page
from tests.support.ports import free_port

#: The heading of docs/reference/observability.md under which the families of a kind stand.
SECTIONS: Final = {
    "agent": "### Agents and rollouts",
    "model": "### Models",
    "environment": "### Environments",
    "collector": "### Collectors",
}
ANY: Final = "### Registry and transport"
OF_DISCOVERY: Final = re.compile(r"gymmesh_(instances|registry|xds)")


def families_under(heading: str) -> set[str]:
    text = read_page(ROOT / "docs" / "reference" / "observability.md").text
    section = text.partition(f"{heading}\n")[2].partition("\n##")[0]
    found = set(re.findall(r"^\| `(gymmesh_\w+)` \|", section, re.MULTILINE))
    assert found, heading
    return found


async def families_of(metrics_address: str) -> set[str]:
    def read() -> str:
        with urlopen(f"http://{metrics_address}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    return set(re.findall(r"^# TYPE (gymmesh_\w+)", await asyncio.to_thread(read), re.MULTILINE))


async def test_each_process_tells_of_its_own_services(tmp_path: Path) -> None:
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(recorded))},
        mesh=MeshSettings(drain_s=2.0),
    )
    of_any = families_under(ANY)
    async with up(config) as running, remote(running.address_of("agent")) as mesh:
        before = {one.kind: await families_of(one.metrics_address) for one in running.infos}
        task = rollout_pb2.Task(
            task_id="t",
            environment="math",
            agent="tool_loop",
            payload_json=b'{"expected_answer": "4"}',
        )
        task.params.input.append(new_message("user", "What is 2 + 2?"))
        request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r", attempt=1, run_id="run")
        outcome = await run_attempt(
            partial(mesh.agents.connect, held=False), request, repeat_index=0, timeout_s=240
        )
        assert not isinstance(outcome, FailedAttempt), outcome
        after = {one.kind: await families_of(one.metrics_address) for one in running.infos}
    for found in (before, after):
        for kind, families in found.items():
            own = families_under(SECTIONS[kind]) if kind in SECTIONS else set[str]()
            assert families <= own | of_any, kind
            assert "gymmesh_event_loop_lag_seconds" in families, kind
            told = {name for name in families if OF_DISCOVERY.match(name)}
            assert bool(told) == (kind == "discovery"), kind
    # What alerts ask the growth of is there before anything grew.
    assert "gymmesh_registry_expired_total" in before["discovery"]
    for kind, family in {
        "agent": "gymmesh_rollouts_total",
        "model": "gymmesh_model_calls_total",
        "environment": "gymmesh_verifications_total",
    }.items():
        assert family in after[kind]


async def test_a_collector_tells_of_itself_and_its_event_loop(tmp_path: Path) -> None:
    """It is looked at while its model does not answer."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until its caller hangs up
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, endpoint = silent.sockets[0].getsockname()
    model = ModelConfig(backend="chat", url=f"http://{host}:{endpoint}/v1", model="m")
    config = MeshConfig(models={"policy": model}, mesh=MeshSettings(drain_s=0.0))
    port = free_port()
    files = ("-i", write_tasks(tmp_path, sums(1)), "-o", tmp_path / "out.jsonl")
    async with silent, up(config) as running:
        collector = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gymmesh_cli", "collect", *files),
            *("--agent", running.address_of("agent"), "--metrics-port", str(port)),
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        try:
            families = set[str]()
            while "gymmesh_collector_in_flight" not in families:
                assert collector.returncode is None
                await asyncio.sleep(0.1)
                with contextlib.suppress(OSError):  # it has not begun yet
                    families = await families_of(f"127.0.0.1:{port}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                collector.kill()
            await collector.wait()
    assert "gymmesh_event_loop_lag_seconds" in families
    assert families <= families_under(SECTIONS["collector"]) | families_under(ANY)
    assert not [name for name in families if OF_DISCOVERY.match(name)]
