"""A training that is killed and resumed trains on the rollouts of one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import (
    Generation,
    Mix,
    RolloutGroup,
    SamplingParams,
    TaskSet,
    TokenBackend,
    TrainerCollector,
)
from tests.support.docs import ROOT
from tests.unit.trainers.char_model import CharTokenizer
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine, generation
from tests.unit.trainers.trainer_collector.test_steps import held_but_first, ones, until

pytestmark = pytest.mark.long(seconds=100)

STEPS = 5
_LOST_S = 300.0


def trained(folder: Path, kill: str = "") -> int:
    """Run the training; its exit status."""
    name = "tests.unit.trainers.trainer_collector.training_run"
    command = [sys.executable, "-m", name, str(folder), str(STEPS), kill]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_LOST_S, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """The steps that were trained, without what depends on when others finished."""
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    for line in lines:
        for counts in line["mix"].values():
            del counts["tasks"]  # drawn ahead of what was handed out
    return lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A training that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert trained(folder) == 0
    found = steps_of(folder)
    assert [line["step"] for line in found] == [1, 2, 3, 4, 5]
    assert all(len(line["groups"]) == 3 for line in found)
    assert any(line["rejected"] for line in found)
    return found


@pytest.mark.parametrize(
    "kill", ["call:1", "group:2", "call:3", "trained:3", "saved:3", "group:4", "trained:5"]
)
def test_a_killed_training_goes_on_with_the_same_rollouts(
    whole: list[dict[str, Any]], tmp_path: Path, kill: str
) -> None:
    assert trained(tmp_path, kill) == -signal.SIGKILL
    assert trained(tmp_path) == 0
    assert steps_of(tmp_path) == whole


def test_a_training_that_is_killed_again_and_again(
    whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    for kill in ("group:1", "call:2", "trained:2", "call:3", "call:4", "saved:4"):
        assert trained(tmp_path, kill) == -signal.SIGKILL
    assert trained(tmp_path) == 0
    assert steps_of(tmp_path) == whole


async def test_files_are_named_by_the_trainer_s_step(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"repeats": 1, "output": tmp_path / "rollouts.jsonl"}
    async with TrainerCollector(Sums, model=ones().model, start_step=7, **settings) as collector:
        assert [group.step async for group in collector.step(rows(2))] == [7, 7]
        assert [group.step async for group in collector.step(rows(1), number=12)] == [12]
        assert collector.next_step == 13
    names = sorted(one.name for one in tmp_path.glob("*.jsonl"))
    assert names == ["rollouts.step-12.jsonl", "rollouts.step-7.jsonl"]


async def test_a_step_does_not_get_the_rollouts_of_an_earlier_one(tmp_path: Path) -> None:
    """The same tasks come again in each epoch: their ids don't tell the steps apart."""
    engine = ones()
    settings: dict[str, Any] = {"repeats": 2, "output": tmp_path / "rollouts.jsonl"}
    settings["model"] = engine.model
    async with TrainerCollector(Sums, **settings) as collector:
        for number in (1, 2):
            assert len([group async for group in collector.step(rows(2))]) == 2
            await collector.set_weights_version(number)
    calls = engine.calls
    async with TrainerCollector(Sums, start_step=3, resume=True, **settings) as collector:
        await collector.set_weights_version(2)
        found = [group async for group in collector.step(rows(2))]
        assert engine.calls == calls + 4
        assert {one.staleness for group in found for one in group.rollouts} == {0}
        assert sorted(one.name for one in tmp_path.glob("*.step-3.jsonl"))


async def test_resuming_without_a_step_s_number_is_refused_where_there_are_steps(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "rollouts.jsonl", "resume": True}
    async with TrainerCollector(Sums, model=ones().model, **settings) as collector:
        assert len([one async for one in collector.step(rows(1))]) == 1  # there is nothing yet
    async with TrainerCollector(Sums, model=ones().model, **settings) as collector:
        with pytest.raises(UserError, match="jsonl has steps of an earlier session"):
            await collector.step(rows(1)).next()


async def test_a_refusal_names_settings_of_the_collector(tmp_path: Path) -> None:
    output = tmp_path / "rollouts.jsonl"
    settings: dict[str, Any] = {"model": ones().model, "output": output, "start_step": 1}
    async with TrainerCollector(Sums, repeats=1, **settings) as collector:
        assert len([one async for one in collector.step(rows(1))]) == 1
    refused: dict[str, dict[str, Any]] = {
        "Resume the run with resume=True, or choose another output": {"repeats": 1},
        "choose another output, or resume anyway with accept_change=\\('config',\\)": {
            "repeats": 2,
            "resume": True,
        },
    }
    for said, more in refused.items():
        async with TrainerCollector(Sums, **settings, **more) as collector:
            with pytest.raises(UserError, match=said) as caught:
                await collector.step(rows(1)).next()
            assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("announced", "anew"), [(4, False), (6, True), (2, True), (None, False)], ids=str
)
async def test_what_is_of_other_weights_is_collected_anew(
    tmp_path: Path, announced: int | None, anew: bool
) -> None:
    """Rows of version 4: too old for version 6, and of a future that version 2 doesn't have."""
    version = [4]
    engine = CountingEngine(lambda prompt, number: "1")

    async def sample(prompt: list[int], params: SamplingParams) -> Generation:
        await engine(prompt, params)
        return generation("1", version[0])

    model = TokenBackend(CharTokenizer(), sample)
    settings: dict[str, Any] = {"repeats": 2, "output": tmp_path / "rollouts.jsonl"}
    settings |= {"model": model, "max_staleness": 1}
    async with TrainerCollector(Sums, start_step=3, **settings) as collector:
        assert len([group async for group in collector.step(rows(2))]) == 2
    calls = engine.calls
    async with TrainerCollector(Sums, start_step=3, resume=True, **settings) as collector:
        if announced is not None:
            version[0] = announced
            await collector.set_weights_version(announced)
        groups = [group async for group in collector.step(rows(2))]
    assert (engine.calls > calls) == anew
    assert len(groups) == 2
    for group in groups:
        assert len(group.rollouts) == 2
        assert {one.oldest_weights for one in group.rollouts} == {version[0]}


@pytest.mark.parametrize("stored", [True, False], ids=["with files", "without files"])
async def test_carried_groups_come_once_after_a_restart(tmp_path: Path, stored: bool) -> None:
    """Groups that were handed out do not come again; those under way do, with what files have."""
    settings: dict[str, Any] = {"repeats": 2, "concurrency": 8}
    if stored:
        settings["output"] = tmp_path / "rollouts.jsonl"
    tasks = TaskSet(rows(40))
    engine = held_but_first()
    async with TrainerCollector(Sums, tasks=tasks, model=engine.model, **settings) as collector:
        async with collector.step(groups=1) as step:
            assert [group.task.id async for group in step] == ["t0"]
        await collector.set_weights_version(1)
        await until(lambda: engine.now == 8)
        left = step.counts["left"]
        state = json.loads(json.dumps(collector.state_dict()))
        assert [len(one["groups"]) for one in state["carried"]] == [left]
        assert 4 <= left <= 5  # of two rollouts each, with eight in flight
        first = collector.state_dict()
        engine.gate.set()
        await until(lambda: engine.now == 0)
        # The rollouts end, and nobody gets their groups before the process does.
        await _written(tmp_path, 2 + 2 * left if stored else 0)
    assert first == state
    again = ones()
    settings |= {"model": again.model, "resume": stored}
    async with TrainerCollector(Sums, tasks=TaskSet(rows(40)), **settings) as collector:
        collector.load_state_dict(state)
        assert collector.weights_version == 1
        assert collector.next_step == 2
        assert collector.counts["groups"] == 1
        assert collector.state_dict() == state
        async with collector.step(groups=left, at_most=left) as step:
            carried = [group async for group in step]
        assert sorted(one.task.id for one in carried) == [f"t{at + 1}" for at in range(left)]
        assert all(one.carried and one.step == 1 for one in carried)
        assert all(len(one.rollouts) == 2 for one in carried)
        assert again.calls == (0 if stored else 2 * left)
        async with collector.step(groups=1, at_most=1) as step:
            assert [group.task.id async for group in step] == [f"t{1 + left}"]


async def _written(folder: Path, lines: int) -> None:
    path = folder / "rollouts.jsonl"
    if lines:
        await until(lambda: len(path.read_text().splitlines()) >= lines)


async def test_a_state_may_be_taken_in_the_middle_of_a_step() -> None:
    async with (
        TrainerCollector(
            Sums, tasks=rows(40), model=held_but_first().model, repeats=1, concurrency=4
        ) as collector,
        collector.step() as step,
    ):
        assert isinstance(await step.next(), RolloutGroup)
        state = collector.state_dict()
    engine = ones()
    async with TrainerCollector(
        Sums, tasks=rows(40), model=engine.model, repeats=1, concurrency=4
    ) as collector:
        collector.load_state_dict(state)
        async with collector.step(at_most=6, ordered=True) as step:
            found = [group.task.id async for group in step]
    assert found == [f"t{at + 1}" for at in range(6)]


async def test_a_state_that_cannot_be_meant_is_refused() -> None:
    async with TrainerCollector(Sums, model=ones().model) as collector:
        state = collector.state_dict()
        for wrong, said in (
            ({}, "state: version None is not supported; this version of gymmesh reads 1"),
            (state | {"step": "x"}, "state: Expected `int`, got `str` - at `\\$.step`"),
            (
                state | {"tasks": {}},
                "was saved by a collector with tasks=; pass the same tasks= to this collector",
            ),
        ):
            with pytest.raises(UserError, match=said):
                collector.load_state_dict(wrong)
        collector.load_state_dict(state)
        assert len([one async for one in collector.step(rows(1))]) == 1
        with pytest.raises(RuntimeError, match="a state can only be loaded before the first step"):
            collector.load_state_dict(state)


async def test_a_state_of_tasks_of_another_kind_is_refused() -> None:
    kinds: list[TaskSet | Mix] = [TaskSet(rows(2)), Mix({"a": rows(2)})]
    collectors = [TrainerCollector(Sums, tasks=one, model=ones().model) for one in kinds]
    states = [one.state_dict() for one in collectors]
    for collector, state in zip(collectors, reversed(states), strict=True):
        with pytest.raises(UserError, match="state: tasks: do not match a"):
            collector.load_state_dict(state)


async def test_a_session_that_began_with_an_empty_folder_needs_no_number(tmp_path: Path) -> None:
    """What the second step finds there is the first one's own."""
    settings: dict[str, Any] = {"output": tmp_path / "rollouts.jsonl", "resume": True}
    async with TrainerCollector(Sums, model=ones().model, repeats=2, **settings) as collector:
        steps = [[one.step async for one in collector.step(rows(1))] for _ in range(2)]
    assert steps == [[1], [2]]


@pytest.mark.parametrize(
    "key", ["step", "weights_version", "newest_version", "counts", "carried", "returned", "tasks"]
)
def test_a_state_without_a_key_is_refused(key: str) -> None:
    collector = TrainerCollector(Sums, tasks=rows(1), model=ones().model)
    state = collector.state_dict()
    del state[key]
    with pytest.raises(UserError, match=f"missing required field `{key}`"):
        collector.load_state_dict(state)


@pytest.mark.parametrize("state", [None, "x", []], ids=str)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(
        UserError, match="state: must be the dictionary that state_dict\\(\\) returned"
    ):
        TrainerCollector(Sums, model=ones().model).load_state_dict(state)


async def test_groups_from_before_the_first_version_are_collected_anew(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"repeats": 1, "output": tmp_path / "rollouts.jsonl"}
    engine = ones()
    settings |= {"model": engine.model, "max_staleness": 0}
    async with TrainerCollector(Sums, start_step=1, **settings) as collector:
        assert len([one async for one in collector.step(rows(2))]) == 2
    calls = engine.calls
    async with TrainerCollector(Sums, start_step=1, resume=True, **settings) as collector:
        await collector.set_weights_version(3)
        groups = [one async for one in collector.step(rows(2))]
    assert engine.calls == calls + 2
    assert [one.oldest_weights for group in groups for one in group.rollouts] == [3, 3]
