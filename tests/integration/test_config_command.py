"""gym-cli config validate, and the configuration that `env init` writes."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.cli import gym


async def test_a_configuration_is_checked_without_starting_anything(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text("models: {policy: {url: http://127.0.0.1:1/v1, api_key: sk-0123456789}}\n")
    done = await gym("config", "validate", path, "--json")
    assert done.code == 0, done.err
    assert "sk-0123456789" not in done.out
    said = json.loads(done.out)
    assert said["problems"] == []
    assert said["configuration"]["models"]["policy"]["backend"] == "chat"
    path.write_text(
        "environments: {a: {use: 'none.py:A'}, j: {use: llm_judge}}\ndefaults: {agent: tool_lop}\n"
    )
    done = await gym("config", "validate", path, cwd=tmp_path)
    assert done.code == 1
    for part in (
        "defaults.environment: there is no environment 'math'",
        "defaults.agent: there is no agent 'tool_lop'; did you mean 'tool_loop'?",
        "there is no file none.py",
        "environments.j: uses model 'judge', which is not in `models`",
    ):
        assert part in done.out
    # Wrong keys and wrong classes are reported together.
    path.write_text("environments: {a: {use: 'none.py:A', optoins: {}}}\n")
    done = await gym("config", "validate", path, cwd=tmp_path)
    assert done.code == 2
    done.said("environments.a.optoins: unknown key", "environments.a.use: ", "no file none.py")
    path.write_text("modls: {}\n")
    done = await gym("config", "validate", path)
    assert done.code == 2
    done.said("did you mean 'models'?")


async def test_the_options_of_agents_are_checked(tmp_path: Path) -> None:
    """As their services check them when they start; nothing is started here."""
    agents = {
        "unknown": {"program": "codx"},
        "two": {"program": "codex", "command": "true"},
        "nothing": {},
        "other_key": {"command": "true", "timeout": 3},
        "no_function": {"function": "no_such_module:run", "in_process": True},
        "no_list": {"command": "true", "path": "/opt/bin"},
        "side_call": {"command": "true", "side_calls": [{"kind": "title"}]},
        "right": {"command": ["true"], "path": ["/opt/bin"]},
    }
    document = {
        "agents": {
            "tool_loop": {"options": {"surprise": 1}},
            "no_class": {"use": "no_such_agent"},
            **{name: {"use": "program", "options": given} for name, given in agents.items()},
        },
        "environments": {"math": {"use": "math"}},
        "models": {"policy": {"url": "http://127.0.0.1:1/v1"}},
    }
    path = tmp_path / "mesh.yaml"
    path.write_text(yaml.safe_dump(document))
    done = await gym("config", "validate", path, "--json")
    assert done.code == 1, done.err
    problems = json.loads(done.out)["problems"]
    wanted = {
        "tool_loop": "has no options; remove: surprise",
        "no_class": "use: there is no agent 'no_such_agent'",
        "unknown": "there is no known program 'codx'; did you mean 'codex'?",
        "two": "program: set exactly one of the options 'program', 'command' and 'function'",
        "nothing": "program: set exactly one of the options 'program', 'command' and 'function'",
        "other_key": "timeout: is not an option of the agent 'program'",
        "no_function": "function: 'no_such_module:run' cannot be imported",
        "no_list": "path: Expected `array`, got `str`",
        "side_call": "side_calls[0].kind: the side call has no condition",
    }
    assert len(problems) == len(wanted), problems
    for name, part in wanted.items():
        assert any(one.startswith(f"agents.{name}") and part in one for one in problems), name


async def test_a_new_environment_has_a_configuration_that_explains_each_key(tmp_path: Path) -> None:
    await gym("env", "init", "word_count", "--into", tmp_path)
    folder = tmp_path / "word_count"
    done = await gym("config", "validate", "mesh.yaml", cwd=folder)
    assert done.code == 0, done.out
    text = (folder / "mesh.yaml").read_text()
    assert yaml.safe_load(text)["defaults"]["environment"] == "word_count"
    lines = text.splitlines()
    keys = [at for at, line in enumerate(lines) if line.startswith("    ") and "#" not in line]
    explained = [at for at in keys if any("#" in line for line in lines[at - 2 : at])]
    assert len(keys) > 5
    assert explained == keys
