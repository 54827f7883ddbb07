"""JSON lines of services that run as processes: what wrote them, and for which rollout."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh import MeshConfig, MeshSettings, remote, up
from gymmesh_model import ModelConfig
from gymmesh_resource import EnvironmentConfig
from gymmesh_responses import params_from_json

BOUND_S = 240.0
LOUD = """
import logging
from gymmesh_resource import Environment

class Loud(Environment[None]):
    def verify(self, session, rollout):
        logging.getLogger("loud").warning("seen\\x1b[2J by %s", "the verifier")
        raise LookupError("nothing to judge")
"""


async def test_what_an_environment_logs_names_its_rollout(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "answers.jsonl").write_text('{"match": "*", "answers": [{"text": "5"}]}\n')
    said: list[str] = []
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(tmp_path / "answers.jsonl"))},
        environments={"loud": EnvironmentConfig(use=f"{tmp_path / 'loud.py'}:Loud")},
        mesh=MeshSettings(log_format="json", metrics=False),
    )

    def of(logger: str) -> list[dict[str, Any]]:
        lines = [json.loads(one) for one in said if one.startswith("{")]
        return [line for line in lines if line["logger"] == logger]

    async with up(config, echo=said.append) as services:
        async with remote(services.address_of("agent")) as mesh:
            [agent] = [one for one in mesh.directory.instances() if one.name == "tool_loop"]
            task = rollout_pb2.Task(
                task_id="t",
                environment="loud",
                params=params_from_json({"input": "What is 2 + 3?"}),
            )
            request = agent_pb2.RunRolloutRequest(task=task, rollout_id="r-loud", attempt=1)
            stream = mesh.directory.peer(agent).RunRollout(request, timeout=BOUND_S)
            events = [response.event async for response in stream]
        assert events[-1].HasField("failed")
        async with asyncio.timeout(BOUND_S):
            while not (of("loud") and of("gymmesh.resource")):  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0.01)
    [own] = of("loud")
    assert own["message"] == "seen\x1b[2J by the verifier"
    fault = of("gymmesh.resource")[-1]
    assert "LookupError: nothing to judge" in fault["exception"]
    for line in (own, fault):
        assert line["rollout_id"] == "r-loud"
        assert (line["service"], line["instance"]) == ("loud", "environment-loud-0")
    assert all(line.startswith("{") for line in said), said
