"""What a person at a notebook sees: signatures, representations, and mistakes at once."""

from __future__ import annotations

import inspect

import pytest

from gymmesh_client import UserError
from gymmesh_resource import Task
from gymmesh_trainers import ScriptedBackend, collect, collect_sync
from gymmesh_trainers.trainer_collector.place import _embedded


def exact(answer: str, expected_answer: str) -> bool:
    """Whether the answer is the expected one."""
    return answer == expected_answer


async def test_a_plain_function_collects() -> None:
    task = {"prompt": "2 + 2?", "expected_answer": "4", "task_id": "sum"}
    found = [
        group async for group in collect(exact, [task], model=ScriptedBackend(["4"]), repeats=1)
    ]
    assert repr(found[0]) == "<RolloutGroup of 'sum': rewards [1]>"
    rollout = found[0].rollouts[0]
    assert repr(rollout) == "<Rollout of 'sum': reward 1 (exact 1), MODEL_FINISHED, '4'>"
    assert repr(Task.of(task)) == """<Task 'sum' {"expected_answer":"4"}>"""


async def test_a_bad_task_raises_before_anything_runs() -> None:
    backend = ScriptedBackend([])
    with pytest.raises(UserError, match=r"tasks\[1\]: expected_answer: is missing"):
        async for _ in collect(
            exact, [{"prompt": "?", "expected_answer": "4"}, {"prompt": "?"}], model=backend
        ):
            pass


def test_options_have_names_and_hints() -> None:
    for function in (collect, collect_sync):
        parameters = inspect.signature(function).parameters
        assert parameters["repeats"].default == 8
        assert "options" not in parameters
        assert "model" in parameters
    with pytest.raises(TypeError, match="there is no option 'repeat'; did you mean 'repeats'"):
        next(collect_sync(exact, [], repeat=3))


async def test_a_url_takes_the_name_of_its_model() -> None:
    config, _ = _embedded(exact, "http://127.0.0.1:1/v1", "qwen")
    assert config.models["policy"].model == "qwen"
    with pytest.raises(UserError, match="model_name: names a model at a URL"):
        _embedded(exact, ScriptedBackend([]), "qwen")
