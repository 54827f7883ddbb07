"""Environments with sandboxes where the mesh has no such service: their process runs one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gymmesh_cli.main import cli
from gymmesh_mesh import MeshConfig, connect
from gymmesh_mesh.authoring.environments import trial
from gymmesh_mesh.authoring.validating import problems_of
from gymmesh_mesh.compose import make_services, specs_of
from gymmesh_mesh.verifying import embedded_environments
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.config import load_config
from gymmesh_sandbox import service as sandbox_service
from gymmesh_sandbox.service import SANDBOX_SERVICE
from tests.support.cli import ended, start
from tests.support.directory_sandboxes import DirectoryBackend
from tests.support.docs import ROOT
from tests.support.served import serve
from tests.unit.sandbox.machine import require_bubblewrap

ENVIRONMENT = '''
from gymmesh_resource import Environment, SandboxSpec, tool

class Bench(Environment[None]):
    """A folder to work in."""

    sandbox = SandboxSpec(files={"notes": "one"})
    sandboxes = {"lent": SandboxSpec(lent=True)}
    examples = [{"task_id": "t", "responses_create_params": {"input": "go"}}]

    @tool
    async def shell(self, session, line: str) -> str:
        """Run a line.

        Args:
            line: the line
        """
        return (await session.sandbox.exec("cat notes")).text

    async def verify(self, session, rollout):
        return float((await session.sandbox.exec("grep -q two notes")).ok)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the environment; in place of bubblewrap, sandboxes are folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text(ENVIRONMENT)
    policy = {"match": "*", "answers": [{"text": "done"}]}
    (tmp_path / "policy.jsonl").write_text(json.dumps(policy) + "\n")

    def find(use: str) -> Callable[[Mapping[str, Any]], DirectoryBackend]:
        assert use == "bubblewrap"
        return lambda options: DirectoryBackend({"folder": str(tmp_path / "boxes"), **options})

    monkeypatch.setattr(sandbox_service, "find_backend", find)
    return tmp_path


def loaded(**more: Any) -> MeshConfig:
    policy = {"backend": "replay", "path": "policy.jsonl"}
    bench = {"use": "bench.py:Bench", **more.pop("bench", {})}
    document = {"models": {"policy": policy}, "environments": {"bench": bench}, **more}
    Path("mesh.yaml").write_text(json.dumps(document))
    return load_config([Path("mesh.yaml")], (), MeshConfig)


def names(config: MeshConfig) -> list[tuple[str, str]]:
    made = make_services(specs_of(config))
    return [(one.kind.rpartition(".")[2].removesuffix("Service"), one.name) for one in made]


async def test_it_is_made_before_the_environment_unless_the_mesh_has_one(folder: Path) -> None:
    alone = names(loaded())
    assert alone.index(("Sandbox", "sandbox")) == alone.index(("Resource", "bench")) - 1
    bench = {"use": "bench.py:Bench"}
    two = names(loaded(environments={"bench": bench, "other": bench}))
    assert two.count(("Sandbox", "sandbox")) == 1
    assert names(loaded(sandboxes={"sandbox": {}})).count(("Sandbox", "sandbox")) == 1
    mapped = {"sandboxes": {"sandbox": "boxes"}}
    found = [name for kind, name in names(loaded(bench=mapped, sandboxes={"boxes": {}}))]
    assert "boxes" in found
    assert "sandbox" not in found


async def test_one_that_the_configuration_names_is_not_made_up(folder: Path) -> None:
    config = loaded(bench={"sandboxes": {"sandbox": "boxes"}}, sandboxes={"boxs": {}})
    assert ("Sandbox", "boxes") not in names(config)
    (problem,) = [one for one in problems_of(config) if "sandbox" in one]
    assert "uses sandbox service 'boxes'" in problem
    assert "did you mean 'boxs'?" in problem


def test_collecting_needs_no_second_process(folder: Path) -> None:
    loaded()
    with pytest.raises(SystemExit) as ended:
        cli(["collect", "--config", "mesh.yaml", "bench", "--output", "out.jsonl", "--quiet"])
    assert not ended.value.code
    (row,) = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert row["reward"] == 0.0
    assert [one["role"] for one in row["sandboxes"]] == ["lent", "workspace"]
    assert not list((folder / "boxes" / "sandboxes").iterdir())


def rows_of(
    folder: Path, environment: str, *, failed: bool = False, **more: Any
) -> list[dict[str, Any]]:
    """The rows of a run; `failed`: of its rollouts that failed. `more`: of the task."""
    prompt = {"responses_create_params": {"input": "go"}}
    task = {"task_id": "t", **prompt, "environment": environment, **more}
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    files = ["--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", "out.jsonl"]
    with pytest.raises(SystemExit) as ended:
        cli(["collect", *files, "--max-attempts", "1", "--quiet"])
    assert bool(ended.value.code) == failed
    rows = folder / ("out.failures.jsonl" if failed else "out.jsonl")
    return [json.loads(line) for line in rows.read_text().splitlines()]


def documented(name: str) -> str:
    """The Python of the page about sandboxes that has this class."""
    text = (ROOT / "docs" / "how-to" / "sandbox.md").read_text(encoding="utf-8")
    (block,) = [str(one) for one in re.findall(r"```python\n(.*?)```", text, re.S) if name in one]
    return block


def test_the_documented_agent_works_in_the_sandbox_that_it_is_lent(folder: Path) -> None:
    (folder / "bench.py").write_text(documented("class ShellAgent"))
    answers = [{"text": "sed -i s/-/+/2 add.py; sed -n 1p add.py"}, {"text": "done"}]
    (folder / "policy.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    loaded(
        bench={"use": "bench.py:Repair"},
        agents={"shell": {"use": "bench.py:ShellAgent"}},
        defaults={"agent": "shell"},
    )
    (row,) = rows_of(folder, "bench")
    assert [one["role"] for one in row["sandboxes"]] == ["workspace"]
    assert "def add(a, b)" in json.dumps(row)
    assert not list((folder / "boxes" / "sandboxes").iterdir())


async def test_an_agent_has_sandboxes_of_its_own_where_nobody_serves_any(folder: Path) -> None:
    (folder / "agent.py").write_text(documented("class Calculator"))
    answers = [{"text": "print(6 * 7)"}]
    (folder / "policy.jsonl").write_text(json.dumps({"match": "*", "answers": answers}) + "\n")
    calculator = {"use": "agent.py:Calculator"}
    config = loaded(
        environments={"math": {"use": "math"}},
        agents={"calculator": calculator},
        defaults={"agent": "calculator", "environment": "math"},
    )
    assert names(config).count(("Sandbox", "sandbox")) == 1
    mapped = {"calculator": {**calculator, "sandboxes": {"sandbox": "boxes"}}}
    wrong = loaded(environments={"math": {"use": "math"}}, agents=mapped)
    assert [one for one in problems_of(wrong) if "agents.calculator: uses sandbox" in one]


async def test_trying_an_environment_out_needs_none_either(folder: Path) -> None:
    findings = await trial("bench", EnvironmentConfig(use="bench.py:Bench"), loaded())
    said = {one.check: one.detail for one in findings}
    assert all(one.fine for one in findings), said
    assert "sandboxes sandbox" in said["describes itself"]
    assert not list((folder / "boxes" / "sandboxes").iterdir())


async def test_stored_rollouts_are_judged_with_its_own(folder: Path) -> None:
    async with embedded_environments(loaded(), ["bench"]) as directory:
        assert len(directory.serving(SANDBOX_SERVICE, "sandbox")) == 1


SHORT = '''
from gymmesh_resource import Environment, SandboxSpec, tool

class Bench(Environment[None]):
    """A folder that does not live long."""

    sandbox = SandboxSpec(life_s=1, lent=LENT)

    @tool
    async def shell(self, session) -> str:
        """Run a line that takes long."""
        return (await session.sandbox.exec("sleep 60")).text

    async def verify(self, session, rollout):
        return 1.0
'''


@pytest.mark.parametrize("network", ["open", "none", ["example.com"]])
async def test_a_program_that_cannot_reach_the_model_is_a_problem(
    folder: Path, network: str | list[str]
) -> None:
    desk = {"use": "workspace", "options": {"network": network}}
    agents = {"coder": {"use": "program", "options": {"command": ["true"]}}}
    usual = {"agent": "coder", "environment": "desk"}
    for defaults in (usual, {"environment": "desk"}):
        config = loaded(environments={"desk": desk}, agents=agents, defaults=defaults)
        (problem,) = [one for one in problems_of(config) if "can't reach the model" in one]
        assert problem.startswith("environments.desk: the network of its sandbox 'workspace' is")
    right = {"desk": desk, "other": {"use": "workspace"}}
    default = loaded(environments=right, agents=agents, defaults=usual)
    assert [one for one in problems_of(default) if "can't reach the model" in one]
    by_row = loaded(environments=right, agents=agents, defaults={"environment": "desk"})
    assert not [one for one in problems_of(by_row) if "can't reach the model" in one]
    in_process = {"function": "os.path:join", "in_process": True}
    agents["coder"]["options"] = in_process
    config = loaded(environments={"desk": desk}, agents=agents, defaults=usual)
    assert not [one for one in problems_of(config) if "can't reach the model" in one]


BY_TASK = '''
from gymmesh_resource import Environment, SandboxSpec

class Bench(Environment[None]):
    """A folder that each task decides."""

    def sandbox_specs(self, task):
        return {"workspace": SandboxSpec(files={"notes": task.payload["notes"]})}

    async def verify(self, session, rollout):
        return float((await session.sandbox.exec("cat notes")).text == "two")
'''


@pytest.mark.parametrize("mapped", [False, True])
def test_sandboxes_that_tasks_alone_decide_need_no_declaration(folder: Path, mapped: bool) -> None:
    (folder / "bench.py").write_text(BY_TASK)
    boxes = {"bench": {"sandboxes": {"sandbox": "boxes"}}, "sandboxes": {"boxes": {}}}
    loaded(**(boxes if mapped else {}))
    (row,) = rows_of(folder, "bench", notes="two")
    assert row["reward"] == 1.0
    assert [one["role"] for one in row["sandboxes"]] == ["workspace"]


@pytest.mark.parametrize("lent", [False, True])
def test_a_row_says_why_its_sandbox_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lent: bool
) -> None:
    require_bubblewrap()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text(SHORT.replace("LENT", str(lent)))
    call = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
    policy = {"match": "*", "answers": [{"output": [call]}, {"text": "done"}]}
    (tmp_path / "policy.jsonl").write_text(json.dumps(policy) + "\n")
    loaded()
    (row,) = rows_of(tmp_path, "bench", failed=True)
    why = "the sandbox's lifetime of 1 s (resources.life_s) is over"
    assert why in json.dumps(row["failure"])
    (box,) = row["sandboxes"]
    assert (box["role"], box["sandbox"]["service"]) == ("workspace", "sandbox")
    assert box["end"]["cause"] == "LIFE"
    assert why in box["end"]["detail"]


async def test_an_environment_that_is_served_alone_has_sandboxes_of_bubblewrap(
    tmp_path: Path,
) -> None:
    require_bubblewrap()
    file = tmp_path / "bench.py"
    file.write_text(ENVIRONMENT)
    served = await serve("environment", f"{file}:Bench", log=tmp_path / "log")
    try:
        async with connect(served.said["address"]) as bench, bench.session() as session:
            assert await session.call("shell", line="ls") == "one"
            assert (await session.verify("done")).reward == 0.0
    finally:
        await served.kill()


async def test_a_command_runs_a_program_in_a_sandbox_of_bubblewrap(tmp_path: Path) -> None:
    require_bubblewrap()
    (tmp_path / "notes").write_text("from here\n")
    put = ("--put", f"{tmp_path / 'notes'}:in")
    ran = await ended(await start("sandbox", "run", *put, "cat in/notes; ls /root; exit 3"))
    assert (ran.code, ran.out) == (3, "from here\n"), ran.err
