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
        "environments.j: asks the model 'judge', which is not in models",
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
