from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gymmesh_agent.agent import Agent, find_agent
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.tool_loop import ToolLoopAgent

CALL = {"type": "function_call", "call_id": "x", "name": "add", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "x", "output": "4"}


def test_examples_become_items() -> None:
    config = AgentConfig(examples=[{"role": "user", "content": "2+2?"}, CALL, OUTPUT])
    kinds = [item.WhichOneof("kind") for item in config.example_items()]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_steps": 0}, "max_steps: must be at least 1, or null"),
        ({"max_total_output_tokens": -1}, "max_total_output_tokens: must be at least 1"),
        ({"max_wall_s": 0}, "max_wall_s: must be a positive number"),
        ({"model_timeout_s": float("inf")}, "model_timeout_s: must be a positive number"),
        ({"examples": ["hi"]}, r"examples\[0\]: must be a Responses item"),
        ({"examples": [{"text": "hi"}]}, r"examples\[0\]: has neither a `type` nor a `role`"),
        ({"examples": [{"type": "message", "content": "x"}]}, r"examples\[0\]: .*`role`"),
        ({"examples": [{"role": "user"}]}, r"examples\[0\]: .*`content`"),
        ({"examples": [{**CALL, "arguments": {}}]}, r"examples\[0\]: .*these keys: arguments"),
        ({"examples": [{**OUTPUT, "call_id": ""}]}, r"examples\[0\]: .*`call_id`"),
        ({"examples": [OUTPUT]}, r"examples\[0\]: answers the call 'x', but no"),
        ({"params": {"input": []}}, "params: 'input' comes from the task"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AgentConfig(**settings)


def test_agents_are_found_by_name_and_by_path() -> None:
    assert find_agent("tool_loop") is ToolLoopAgent
    assert find_agent("gymmesh_agent.tool_loop:ToolLoopAgent") is ToolLoopAgent


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        ("tool_lop", "did you mean 'tool_loop'"),
        ("nowhere.at_all:Agent", "cannot be imported"),
        ("gymmesh_agent.tool_loop:Missing", "cannot be imported"),
        ("gymmesh_agent.config:AgentConfig", "not an agent class"),
        (":X", "cannot be imported"),
        ("no/such/file.py:X", "cannot be imported"),
    ],
)
def test_agents_that_are_not_there(use: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        find_agent(use)


def test_an_agent_of_the_working_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # As a console script has it.
    monkeypatch.setattr("sys.path", [one for one in sys.path if one])
    (tmp_path / "agent_of_this_folder.py").write_text(
        "from gymmesh_agent.agent import Agent\n"
        "class Mine(Agent):\n    async def run(self, context): ...\n",
        encoding="utf-8",
    )
    assert find_agent("agent_of_this_folder:Mine").__name__ == "Mine"


def test_agent_in_a_file_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from gymmesh_agent.agent import Agent, Completion\n"
        "@dataclass\nclass Note:\n    text: str\n"
        "class Mine(Agent):\n    async def run(self, scope): return Completion.by_rule('x')\n",
        encoding="utf-8",
    )
    found = find_agent(f"{file}:Mine")
    assert found.__name__ == "Mine"
    assert find_agent(f"{file}:Mine") is found
    file.with_name("script.py").write_text("import sys\nsys.exit(4)", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot be imported: SystemExit\(4\)"):
        find_agent(f"{file.with_name('script.py')}:Mine")
    file.with_name("bad.py").write_text("class (", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be imported: invalid syntax"):
        find_agent(f"{tmp_path}/bad.py:Mine")


def test_options_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="ToolLoopAgent has no options; remove: depth"):
        ToolLoopAgent({"depth": 3})
    assert issubclass(ToolLoopAgent, Agent)
