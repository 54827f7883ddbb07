"""What exports and the page say that a program asked for: what it sent, and not what the task has,
on whatever branch the call hangs that they tell of.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_cli.main import cli
from gymmesh_data.actors import actors_of
from gymmesh_data.rollout import StoredRollout, rollout_of_line
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_trainers import TrainerCollector
from gymmesh_view.rollout.detail import detail_of
from tests.support.vllm_server import FakeVllm, says
from tests.unit.gateway.programs import ProgramAgent, posting

QUESTION: Final = "What is 1 + 1?"
ANSWER: Final = "2"
Messages = list[dict[str, Any]]


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": name, "parameters": parameters}


# What an agent of ours would send; no program here does.
TASK: Final = {
    "task_id": "t",
    "answer": ANSWER,
    "responses_create_params": {
        "input": QUESTION,
        "tools": [tool("shell")],
        "instructions": "You use the shell.",
        "temperature": 0.5,
        "parallel_tool_calls": True,
    },
}
USER: Final = {"role": "user", "content": QUESTION}


def begins() -> Messages:
    """The same request again, answered whole: a second sample."""
    return [USER]


def made_up() -> Messages:
    """A history with an answer that no call wrote."""
    return [USER, {"role": "assistant", "content": "Three."}, {"role": "user", "content": "Sure?"}]


async def sent(gateway: Gateway, messages: Messages, *tools: str, **more: Any) -> None:
    """One call, read whole. more: of the body, and headers as `x_name`."""
    headers = {name.replace("_", "-"): more.pop(name) for name in list(more) if name[:2] == "x_"}
    body = {"model": "m", "messages": messages, **more}
    if tools:
        listed = [tool(name) for name in tools]
        body["tools"] = [
            {"type": "function", "function": {key: one[key] for key in one if key != "type"}}
            for one in listed
        ]
    async with posting(gateway, body, headers=headers) as response:
        assert response.status == 200, await response.text()
        await response.read()


class Captured:
    """A rollout of a program, as its file has it."""

    def __init__(self, rows: Path) -> None:
        self.rows = rows
        (self.line,) = rows.read_bytes().splitlines()
        self.row: dict[str, Any] = json.loads(self.line)

    @property
    def stored(self) -> StoredRollout:
        return rollout_of_line(self.line, "rollouts.jsonl:1")

    def exported(self, form: str, suffix: str = "jsonl") -> Path:
        written = self.rows.with_name(f"{form}.{suffix}")
        words = ["export", str(self.rows), "--format", form, "--output", str(written)]
        done = CliRunner().invoke(cli, [*words, "--overwrite"])
        assert done.exit_code == 0, done.output
        return written

    def record(self, form: str) -> dict[str, Any]:
        (line,) = self.exported(form).read_text().splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


def captured(
    rows: Path, program: Callable[[Gateway], Awaitable[None]], calls: int, task: Mapping[str, Any]
) -> Captured:
    """A rollout in which a program made so many calls."""

    async def collected() -> None:
        server = FakeVllm(splits=True, script=[says(ANSWER)] * calls)
        ProgramAgent.main = staticmethod(program)
        config = MeshConfig(
            environments={"sums": EnvironmentConfig(use="tests.unit.trainers.environments:Sums")},
            agents={"program": AgentConfig(use="tests.unit.gateway.programs:ProgramAgent")},
            defaults=Defaults(environment="sums", agent="program"),
        )
        async with (
            server,
            TrainerCollector(
                config, model=server.url, repeats=1, max_steps=20, output=rows
            ) as collector,
            collector.step([task]) as step,
        ):
            [one async for one in step]

    asyncio.run(collected())
    return Captured(rows)


@pytest.fixture(scope="module", params=[begins, made_up])
def without_tools(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Captured:
    """A program that offers no tools, and whose last call continues none of its calls."""

    async def program(gateway: Gateway) -> None:
        asked = {"temperature": 0.9, "parallel_tool_calls": False, "top_p": 0.25}
        await sent(gateway, [USER], **asked)
        await sent(gateway, request.param(), **asked)

    rows = tmp_path_factory.mktemp(request.param.__name__) / "rollouts.jsonl"
    found = captured(rows, program, 2, TASK)
    first, second = found.row["calls"]
    assert second.get("detached") or second["link"] == "FORK"
    (note,) = [one for one in found.row["annotations"] if one["key"].endswith("gateway_request")]
    assert note["model_call_id"] == first["call_id"] != second["call_id"]
    # What an agent without a program would have sent.
    assert [one["name"] for one in found.row["response"]["tools"]] == ["shell", "add"]
    return found


def test_an_export_names_no_tool_that_the_program_never_had(without_tools: Captured) -> None:
    assert without_tools.stored.tools == []
    assert "tools" not in without_tools.record("sft")
    assert without_tools.record("messages")["tools"] == []
    assert "tool_definitions" not in without_tools.record("atif")["agent"]
    assert "tools" not in without_tools.record("openai")
    assert "shell" not in json.dumps(without_tools.record("otel"))
    table = pytest.importorskip("pyarrow.parquet").read_table(
        without_tools.exported("verl-sft", "parquet")
    )
    assert table.to_pylist()[0].get("tools") is None


def test_no_instructions_of_the_task_are_among_its_messages(without_tools: Captured) -> None:
    assert without_tools.record("sft")["messages"][0] == USER


def test_the_page_lists_what_was_sent(without_tools: Captured) -> None:
    shown: Any = detail_of(without_tools.stored)
    assert shown["tools"] == []
    assert shown["instructions"] == ""
    # The run's parameters over the program's.
    params = json.loads(shown["params"])
    assert (params["temperature"], params["top_p"]) == (0.5, 0.25)
    assert params["parallel_tool_calls"] is True


def test_nemo_gyms_row_has_the_request_that_was_sent(without_tools: Captured) -> None:
    row = without_tools.record("nemo-gym")
    for said in (row["responses_create_params"], row["response"]):
        assert said["tools"] == []
        assert said.get("instructions") is None
        assert (said["temperature"], said["top_p"]) == (0.5, 0.25)
        assert said["parallel_tool_calls"] is True
    assert row["responses_create_params"]["input"] == QUESTION


def test_what_the_run_leaves_open_is_the_programs(tmp_path: Path) -> None:
    async def program(gateway: Gateway) -> None:
        await sent(gateway, [USER], "look", parallel_tool_calls=False)
        await sent(gateway, [USER], "look", parallel_tool_calls=False)

    task = {"task_id": "t", "answer": ANSWER, "prompt": QUESTION}
    found = captured(tmp_path / "rollouts.jsonl", program, 2, task)
    assert found.record("openai")["parallel_tool_calls"] is False
    row = found.record("nemo-gym")
    assert row["responses_create_params"]["parallel_tool_calls"] is False
    assert [one["name"] for one in row["responses_create_params"]["tools"]] == ["look"]


def test_the_page_tells_answers_of_the_model_from_what_was_given(tmp_path: Path) -> None:
    given = [USER, {"role": "assistant", "content": "Three."}, USER]

    async def program(gateway: Gateway) -> None:
        await sent(gateway, given)
        await sent(gateway, given)
        # Nothing tells which of the two equal answers goes on.
        await sent(gateway, [*given, {"role": "assistant", "content": f"{ANSWER}\n"}, USER])

    found = captured(tmp_path / "rollouts.jsonl", program, 3, TASK)
    assert found.row["calls"][-1]["link"] == "UNKNOWN"
    shown: Any = detail_of(found.stored)
    before = [one for one in shown["items"] if one["prompt"]]
    assert [one["role"] for one in before] == ["user", "assistant", "user", "assistant", "user"]
    assert [one.get("answered", False) for one in before] == [False, False, False, True, False]


@pytest.fixture(scope="module")
def with_sub_agent(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A program and its sub-agent, which asks twice with tools of its own."""

    async def program(gateway: Gateway) -> None:
        claude = {"x_claude_code_session_id": "s"}
        sub = [{"role": "system", "content": "You search."}, {"role": "user", "content": "Find."}]
        await sent(gateway, [USER], "Bash", **claude)
        for _ in range(2):
            await sent(gateway, sub, "Grep", x_claude_code_agent_id="a1", **claude)
        await sent(gateway, [USER], "Bash", **claude)

    return captured(tmp_path_factory.mktemp("sub") / "rollouts.jsonl", program, 4, TASK)


def test_each_actor_has_the_tools_that_it_sent(with_sub_agent: Captured) -> None:
    stored = with_sub_agent.stored
    assert [one["name"] for one in stored.tools] == ["Bash"]
    (actor,) = actors_of(stored)
    assert [[one["name"] for one in said.tools] for said in actor.conversations] == [["Grep"]] * 2
    record = with_sub_agent.record("messages")
    assert [one["function"]["name"] for one in record["tools"]] == ["Bash"]
    (told,) = record["actors"]
    names = [[one["function"]["name"] for one in said["tools"]] for said in told["conversations"]]
    assert names == [["Grep"]] * 2
