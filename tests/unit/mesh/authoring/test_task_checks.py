"""Environments look at tasks before they are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh.authoring.task_checks import TaskChecks
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.registry import environment_names, example_tasks, make_environment
from gymmesh_runtime.config import ConfigError

# What those environments cannot be made without.
OPTIONS: dict[str, dict[str, Any]] = {
    "harbor": {"tasks": str(Path(__file__).parent)},
    "openenv": {"url": "http://127.0.0.1:1", "tasks": 1},
    "ors": {"url": "http://127.0.0.1:1", "tasks": 1},
    "nemo_gym": {"url": "http://127.0.0.1:1"},
    "mcp": {"servers": {"files": {"command": ["true"]}}},
}


# Their tasks are listed by an interpreter with the other side's packages: tests/bridges.
ELSEWHERE = {"inspect", "verifiers"}


@pytest.mark.parametrize("name", sorted(set(environment_names()) - ELSEWHERE))
def test_every_environment_can_say_before_it_is_open(name: str) -> None:
    config = EnvironmentConfig(use=name, options=OPTIONS.get(name, {}))
    try:
        tasks = example_tasks(make_environment(config.use, config.options), name)
    except Exception as error:  # an extra that is not installed
        pytest.skip(str(error))
    checks = TaskChecks({name: config})
    for task in tasks:
        assert checks.problem(task) is None, task.task_id
    checks.problem(rollout_pb2.Task(task_id="bare", environment=name))
    assert checks.unable == {}


def task(environment: str, payload: bytes = b"{}") -> rollout_pb2.Task:
    return rollout_pb2.Task(task_id="t", environment=environment, payload_json=payload)


def test_what_is_refused_is_named() -> None:
    checks = TaskChecks({"sums": EnvironmentConfig(use="math")})
    assert checks.problem(task("sums", b'{"expected_answer": "4"}')) is None
    assert checks.problem(task("elsewhere")) is None
    found = checks.problem(task("sums"))
    assert found is not None
    assert (found[0], found[1].endswith("; environment 'sums' rejects the row")) == (
        "expected_answer",
        True,
    )
    wrong = checks.problem(task("sums", b"[]"))
    assert wrong is not None
    assert wrong[0] == ""


CODE = """
from gymmesh_resource import Environment


class Late(Environment[None]):
    '''Knows only once it is open.'''

    def open(self):
        self.known = {"a"}

    def check_task(self, task):
        assert task.id in self.known

    def verify(self, session, rollout):
        return 1.0


class Leaves(Late):
    def check_task(self, task):
        raise SystemExit(4)
"""


@pytest.mark.parametrize("name", ["Late", "Leaves"])
def test_a_fault_of_the_environment_s_is_none_of_the_row_s(name: str, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(CODE)
    checks = TaskChecks({"late": EnvironmentConfig(use=f"{tmp_path}/late.py:{name}")})
    assert [checks.problem(task("late")), checks.problem(task("late"))] == [None, None]
    assert checks.unable == {"late": 2}


def test_an_environment_that_cannot_be_made() -> None:
    with pytest.raises(ConfigError, match="no environment 'maths'"):
        TaskChecks({"x": EnvironmentConfig(use="maths")}).problem(task("x"))
