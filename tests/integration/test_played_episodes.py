"""Episodes that an environment plays itself, in a mesh of a process for each service: rows."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, up
from gymmesh_mesh.config import MeshSettings
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig

RIDDLES = '''
import dataclasses

from openai import AsyncOpenAI

from gymmesh_resource import Environment, ModelEndpoint, Rollout, Session


@dataclasses.dataclass
class Played:
    said: str | None = None


class Riddles(Environment[Played]):
    """Asks its riddle itself."""

    state = Played

    async def play(self, session: Session[Played], endpoint: ModelEndpoint) -> None:
        async with AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.key) as client:
            answer = await client.responses.create(
                model=endpoint.model, input=session.task.payload["riddle"]
            )
        session.state.said = answer.output_text

    def verify(self, session: Session[Played], rollout: Rollout) -> float:
        return float(session.state.said == rollout.task.payload["solution"])
'''


@pytest.mark.parametrize("layout", ["mesh", "cell"])
async def test_rows_of_a_mesh(tmp_path: Path, layout: Any) -> None:
    (tmp_path / "riddles.py").write_text(RIDDLES)
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "a piano"}]}) + "\n")
    tasks, rows = tmp_path / "tasks.jsonl", tmp_path / "rows.jsonl"
    solutions = ["a piano", "a key", "a piano"]
    tasks.write_text(
        "".join(
            json.dumps({"task_id": str(number), "prompt": "-", "riddle": "?", "solution": one})
            + "\n"
            for number, one in enumerate(solutions)
        )
    )
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(recorded))},
        environments={"riddles": EnvironmentConfig(use=f"{tmp_path}/riddles.py:Riddles")},
        agents={"player": AgentConfig(use="program", options={"program": "environment"})},
        mesh=MeshSettings(layout=layout, drain_s=2.0, ready_s=120.0),
    )
    async with up(config) as mesh:
        (address,) = {info.address for info in mesh.infos if info.kind == "agent"}
        command = ["-m", "gymmesh_cli", "collect", "-i", tasks, "-o", rows, "--agent", address]
        command += ["--env", "riddles"]
        collect = await asyncio.create_subprocess_exec(sys.executable, *map(str, command))
        assert await asyncio.wait_for(collect.wait(), 300) == 0
    found = {row["task_id"]: row for row in map(json.loads, rows.read_text().splitlines())}
    assert [found[str(number)]["reward"] for number in range(3)] == [1.0, 0.0, 1.0]
    for row in found.values():
        assert (row["program_name"], row["program_version"]) == ("environment", "1")
        assert row["stop_reason"] == "PROGRAM_EXITED"
        assert row["program"]["detail"] == "environment riddles 1: the episode is over"
        assert len(row["calls"]) == 1
    assert "sk-gymmesh-" not in rows.read_text()
