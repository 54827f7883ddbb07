"""A task file names the agents that run its rows; the agents are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, MeshSettings, up
from gymmesh_model.config import ModelConfig
from tests.support.cli import Ended, gym, rows_of, write_tasks
from tests.support.collecting import CollectAgent, serve_agent


def called(name: str) -> CollectAgent:
    agent = CollectAgent()
    agent.name = name
    return agent


async def collect(folder: Path, names: Sequence[str], *agents: str) -> Ended:
    """Collect a row for each name, the empty one for a row that names no agent."""
    rows = [{"task_id": name or "plain", "prompt": "?", "expected_answer": "1"} for name in names]
    named = [{"agent": name} if name else {} for name in names]
    tasks = write_tasks(folder, [row | agent for row, agent in zip(rows, named, strict=True)])
    asked = [word for agent in agents for word in ("--agent", agent)]
    command = ("collect", "-i", tasks, "-o", folder / "o.jsonl", "--env", "math", "--quiet")
    return await gym(*command, *asked)


async def test_rows_name_agents_at_several_addresses(tmp_path: Path) -> None:
    adder, clerk = called("adder"), called("clerk")
    async with serve_agent(adder) as first, serve_agent(clerk) as second:
        at = (f"127.0.0.1:{first}", f"127.0.0.1:{second}")
        done = await collect(tmp_path, ["", "adder", "clerk"], *at)
    assert (done.code, done.err) == (0, "")
    assert {one.task.task_id for one in adder.requests} == {"plain", "adder"}
    assert {one.task.task_id for one in clerk.requests} == {"clerk"}


async def test_an_agent_that_no_row_names_is_said(tmp_path: Path) -> None:
    async with serve_agent(called("adder")) as first, serve_agent(called("clerk")) as second:
        at = (f"127.0.0.1:{first}", f"127.0.0.1:{second}")
        done = await collect(tmp_path, ["", "adder"], *at)
        assert done.code == 0
        done.said("no task names agent 'clerk' of --agent, so this agent runs no rollouts")
        (tmp_path / "o.jsonl").unlink()
        done = await collect(tmp_path, ["nobody"], *at)
        assert done.code == 1
        done.said("there is no agent 'nobody'; known names: adder, clerk")


@pytest.mark.long
async def test_rows_name_agents_of_a_registry(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"match": "*", "answers": [{"text": "1"}]}\n')
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(answers))},
        agents={"tool_loop": AgentConfig(), "clerk": AgentConfig(use="tool_loop")},
        mesh=MeshSettings(drain_s=2.0),
    )
    async with up(config) as mesh:
        registry = f"discovery://{mesh.address_of('discovery')}/tool_loop"
        done = await collect(tmp_path, ["", "clerk"], registry)
        assert (done.code, done.err) == (0, "")
    assert {row["agent"] for row in rows_of(tmp_path / "o.jsonl")} == {"tool_loop", "clerk"}
