"""The bridges end to end: NeMo Gym's example rows through a resources server, and MCP tools.

The recorded rollouts are played again: each call goes to the server over HTTP, and the server
judges what was recorded. By default the servers are ours, which follow nemo-gym's API. With
GYMMESH_NEMO_GYM_PYTHON naming a Python in which nemo-gym can be imported, its own run as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.tasks import TaskDefaults, TaskReader, TaskRow
from gymmesh_resource.environments.nemo_gym import NemoGymEnvironment
from gymmesh_responses import items_from_json
from tests.conftest import require
from tests.unit.environments.nemo_gym.nemo_server import Counter, Synonyms, Weather, serving
from tests.unit.resource.served import served

_PYTHON = os.environ.get("GYMMESH_NEMO_GYM_PYTHON", "")
_KINDS = ["example_session_state_mgmt", "example_single_tool_call", "example_multi_step"]
_OURS = dict(zip(_KINDS, (Counter, Weather, Synonyms), strict=True))
_THEIRS = dict(
    zip(
        _KINDS,
        (
            "StatefulCounterResourcesServer",
            "SimpleWeatherResourcesServer",
            "ExampleMultiStepResourcesServer",
        ),
        strict=True,
    )
)
_START_S = 240.0
_TOOL_SERVER = Path(__file__).parents[1] / "unit" / "environments" / "mcp" / "tool_server.py"


@asynccontextmanager
async def nemo(whose: str, kind: str) -> AsyncIterator[str]:
    """The URL of a resources server."""
    if whose == "ours":
        async with serving(_OURS[kind]().app) as url:
            yield url
        return
    script = Path(__file__).with_name("nemo_gym_server.py")
    process = await asyncio.create_subprocess_exec(
        _PYTHON, str(script), kind, _THEIRS[kind], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), _START_S)
        yield line.decode().strip()
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 240)


def recorded(golden_dir: Path, kind: str) -> list[tuple[rollout_pb2.Task, dict[str, Any]]]:
    """Each recorded rollout with the task that it is of: the one with the same prompt."""
    tasks = {}
    for row in TaskReader(TaskDefaults("e", "a")).read(golden_dir / f"{kind}.example.jsonl"):
        assert isinstance(row, TaskRow), row
        tasks[_prompt(json.loads(_raw(golden_dir, kind, row.line)))] = row.task
    lines = (golden_dir / f"{kind}.example_rollouts.jsonl").read_text().splitlines()
    rollouts = [json.loads(line) for line in lines]
    return [(tasks[_prompt(rollout)], rollout) for rollout in rollouts]


def _raw(golden_dir: Path, kind: str, line: int) -> str:
    return (golden_dir / f"{kind}.example.jsonl").read_text().splitlines()[line - 1]


def _prompt(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(part["content"] for part in row["responses_create_params"]["input"])


@pytest.mark.golden
@pytest.mark.parametrize("whose", ["ours", *(["nemo_gym"] if _PYTHON else [])])
@pytest.mark.parametrize("kind", _KINDS)
async def test_recorded_rollouts_get_their_rewards(golden_dir: Path, kind: str, whose: str) -> None:
    rollouts = recorded(golden_dir, kind)
    assert len(rollouts) == 5
    async with nemo(whose, kind) as url, served(NemoGymEnvironment(url=url)) as mesh:
        for task, rollout in rollouts:
            output = rollout["response"]["output"]
            session = (await mesh.create(task)).session_id
            told = {item["call_id"]: item["output"] for item in output if "output" in item}
            for call in output:
                if call["type"] == "function_call":
                    answer = await mesh.call(session, call["name"], call["arguments"].encode())
                    assert answer.outcome == rollout_pb2.TOOL_OUTCOME_OK, answer.text
                    assert json.loads(answer.text) == json.loads(told[call["call_id"]])
            verdict = await mesh.verify(session, task, items_from_json(output))
            assert verdict.reward == rollout["reward"]
            components = {part.name: part.value for part in verdict.components}
            for key in ("accuracy", "set_overlap", "original_term_minefield_hit"):
                assert components.get(key) == rollout.get(key)
            await mesh.close(session)


@pytest.mark.golden
async def test_the_rows_are_collected_unchanged(golden_dir: Path, tmp_path: Path) -> None:
    kind = "example_session_state_mgmt"
    tasks = golden_dir / f"{kind}.example.jsonl"
    answers = [_calls(1, 2), _calls(), {"output": [_said("6")]}]
    (tmp_path / "answers.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    async with serving(Counter().app) as url:
        (tmp_path / "mesh.yaml").write_text(
            "models: {policy: {backend: replay, path: answers.jsonl}}\n"
            "environments:\n  counter:\n"
            f"    use: gymmesh_resource.environments.nemo_gym:NemoGymEnvironment\n"
            f"    options: {{url: '{url}'}}\n"
            "defaults: {environment: counter}\n"
        )
        rows = await _collect(tmp_path, str(tasks))
    # 1 and 2 are added in each: right for the first task alone, whose counter starts at 3.
    assert {row["expected_count"]: row["reward"] for row in rows} == {
        6: 1.0, 15: 0.0, 24: 0.0, 33: 0.0, 42: 0.0,
    }  # fmt: skip
    outputs = [
        item["output"]
        for row in rows
        for item in row["response"]["output"]
        if item["type"] == "function_call_output"
    ]
    assert json.loads(outputs[0]) == {"success": True}


def _calls(*counts: int) -> dict[str, Any]:
    named = [("increment_counter", json.dumps({"count": count})) for count in counts]
    return {
        "output": [
            {"type": "function_call", "name": name, "arguments": arguments, "call_id": f"c{index}"}
            for index, (name, arguments) in enumerate(named or [("get_counter_value", "{}")])
        ]
    }


def _said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


async def test_tools_of_an_mcp_server_by_a_line_in_the_configuration(tmp_path: Path) -> None:
    require(find_spec("mcp"), "the mcp package", "pip install 'gymmesh[mcp]'")
    call = {
        "type": "function_call", "name": "reverse", "arguments": '{"text": "mesh"}', "call_id": "c",
    }  # fmt: skip
    answers = [{"output": [call]}, {"output": [_said("It is hsem.")]}]
    (tmp_path / "answers.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    row = {"responses_create_params": {"input": "Reverse mesh."}, "expected_answer": "hsem"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    command = json.dumps([sys.executable, str(_TOOL_SERVER), "stdio"])
    (tmp_path / "mesh.yaml").write_text(
        "models: {policy: {backend: replay, path: answers.jsonl}}\n"
        "environments:\n  desk:\n"
        "    use: gymmesh_resource.environments.mcp:McpEnvironment\n"
        "    options:\n      verdict: contains\n"
        f"      servers: {{one: {{command: {command}, quiet: true}}}}\n"
        "defaults: {environment: desk}\n"
    )
    [collected] = await _collect(tmp_path, "tasks.jsonl")
    assert collected["reward"] == 1.0
    [output] = [one for one in collected["response"]["output"] if "output" in one]
    assert output["output"] == "hsem"


async def _collect(folder: Path, tasks: str) -> list[dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymmesh_cli", "collect", "--config", "mesh.yaml",
        "--input", tasks, "--output", "out.jsonl",
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0, said.decode()
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
