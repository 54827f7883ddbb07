"""Tasks that a collector draws: their order, their shares, and their state."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import TaskDefaults, UserError
from gymmesh_resource import Task
from gymmesh_trainers import Mix, RolloutGroup, Stages, TaskSet
from gymmesh_trainers.trainer_collector.filters import pass_rate, rejected_by, rules_of, spread
from gymmesh_trainers.trainer_collector.sources import TaskStream
from tests.unit.trainers.environments import rows

DEFAULTS = TaskDefaults("sums", "tool_loop")


def opened(source: Any) -> Any:
    source.open(DEFAULTS, lambda tasks: None)
    return source


def named(name: str, count: int) -> list[dict[str, Any]]:
    return [row | {"task_id": f"{name}{at}"} for at, row in enumerate(rows(count))]


def draws(source: TaskStream, count: int) -> list[tuple[str, str]]:
    found = [source.draw() for _ in range(count)]
    return [(one.source, one.task.task_id) for one in found if one is not None]


class _Rewarded(RolloutGroup):
    """A group of these rewards."""

    def __init__(self, *rewards: float) -> None:
        super().__init__(Task.of(rows(1)[0]))
        object.__setattr__(self, "_rewards", list(rewards))

    @property
    def rewards(self) -> list[float]:
        found: list[float] = self.__dict__["_rewards"]
        return found


def test_a_list_is_drawn_in_another_order_each_epoch_and_each_task_once() -> None:
    source = opened(TaskSet(rows(20), shuffle=3, epochs=2))
    drawn = [name for _, name in draws(source, 50)]
    first, second = drawn[:20], drawn[20:]
    assert sorted(first) == sorted(second) == sorted(row["task_id"] for row in rows(20))
    assert first != second
    assert [name for _, name in draws(opened(TaskSet(rows(20), shuffle=3)), 40)] == drawn


def test_tasks_get_seeds_that_are_others_in_each_epoch() -> None:
    given = [rows(1)[0], rows(2)[1] | {"seed": 7}]
    source = opened(TaskSet(given, seed=5))
    seeds = [one.task.seed for one in (source.draw() for _ in range(6))]
    assert seeds[1::2] == [7, 7, 7]
    assert len(set(seeds[::2])) == 3
    again = opened(TaskSet(given, seed=5))
    assert [one.task.seed for one in (again.draw() for _ in range(6))] == seeds
    assert not opened(TaskSet(given)).draw().task.HasField("seed")


def test_a_task_file_is_drawn_like_a_list(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(3)))
    assert [name for _, name in draws(opened(TaskSet(path)), 4)] == ["t0", "t1", "t2", "t0"]


def _mix() -> Mix:
    stages = Stages([named("easy", 2), named("hard", 2)], advance_at=0.5, over=2)
    return Mix(
        {
            "sums": TaskSet(named("s", 5), shuffle=1, seed=1),
            "stages": stages,
            "off": named("o", 1),
        },
        weights={"sums": 3.0, "off": 0.0},
    )


@pytest.mark.parametrize("at", [0, 1, 7, 30])
def test_a_source_goes_on_from_its_state(at: int) -> None:
    source = opened(_mix())
    for place in range(at):
        drawn = source.draw()
        source.observe(drawn.source, _Rewarded(float(place % 2), 1.0), "")
    state = json.loads(json.dumps(source.state_dict()))
    again = _mix()
    again.load_state_dict(state)
    assert again.state_dict()["weights"] == source.state_dict()["weights"]
    again.open(DEFAULTS, lambda tasks: None)
    assert again.state_dict() == source.state_dict()
    assert [again.draw() for _ in range(40)] == [source.draw() for _ in range(40)]


def test_shares_are_the_weights_and_change_between_steps() -> None:
    mix = opened(Mix({"a": named("a", 3), "b": named("b", 3)}, weights={"a": 3, "b": 1}))
    assert Counter(name for name, _ in draws(mix, 40)) == {"a": 30, "b": 10}
    mix.weights = {"a": 1, "b": 1}
    assert Counter(name for name, _ in draws(mix, 40)) == {"a": 20, "b": 20}
    mix.observe("a", _Rewarded(1.0), "")
    mix.observe("a", _Rewarded(1.0), "spread")
    assert mix.counts["a"] == {"tasks": 50, "groups": 2, "kept": 1, "rejected": 1}
    assert mix.counts["b"] == {"tasks": 30}


def test_a_source_that_is_over_leaves_the_rest_to_the_others() -> None:
    mix = opened(Mix({"a": TaskSet(named("a", 2), epochs=1), "b": TaskSet(rows(3), epochs=1)}))
    assert Counter(name for name, _ in draws(mix, 10)) == {"a": 2, "b": 3}
    assert mix.draw() is None


def test_a_curriculum_advances_by_the_rewards_of_its_own_stage() -> None:
    stages = opened(Stages([named("e", 2), named("m", 2), named("h", 2)], advance_at=0.75, over=2))
    for rewards, stage in (
        ([1.0, 1.0], 0),  # one group is not two
        ([], 0),  # nothing was judged
        ([0.0, 0.0], 0),
        ([1.0], 0),
        ([1.0], 1),
    ):
        stages.observe("0", _Rewarded(*rewards), "")
        assert stages.stage == stage
    stages.observe("0", _Rewarded(1.0), "")  # a late group of the stage before
    stages.observe("1", _Rewarded(1.0), "")
    assert stages.stage == 1
    stages.observe("1", _Rewarded(1.0), "")
    for _ in range(4):
        stages.observe("2", _Rewarded(1.0), "")
    assert stages.stage == 2
    assert draws(stages, 1) == [("2", "h0")]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TaskSet(rows(1), epochs=0), "epochs: must be at least 1, not 0"),
        (lambda: Stages([], advance_at=1.0), "stages: must contain at least one"),
        (lambda: Stages([rows(1)], advance_at=1.0, over=0), "over: must be at least 1, not 0"),
        (lambda: Mix({}), "sources: must contain at least one"),
        (
            lambda: Mix({"a": rows(1)}, {"b": 1}),
            "weights: there is no source 'b'; known sources: a",
        ),
        (
            lambda: Mix({"a": rows(1)}, {"a": -1}),
            "weights: a: must be a number of at least 0, not -1",
        ),
        (lambda: Mix({"a": rows(1)}, {"a": 0}), "weights: at least one must be above 0"),
        (lambda: pass_rate(0.9, 0.1), "pass_rate: bounds must be 0 <= low <= high <= 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_state_of_other_tasks_is_refused() -> None:
    state = opened(TaskSet(rows(3))).state_dict()
    other = TaskSet(rows(4))
    other.load_state_dict(state)
    with pytest.raises(UserError, match="the state has 3 tasks, but this TaskSet has 4"):
        other.open(DEFAULTS, lambda tasks: None)
    with pytest.raises(UserError, match="the state has the sources sums, stages, off, but this"):
        Mix({"sums": rows(1)}).load_state_dict(opened(_mix()).state_dict())


@pytest.mark.parametrize(
    ("rewards", "rejected"),
    [
        ([0.0, 1.0], ""),
        ([1.0, 1.0], "spread"),
        ([], "no_reward"),
        ([0.0] * 19 + [1.0], "pass_rate(0.1, 0.9)"),
        ([0.0] * 9 + [1.0], ""),
        ([0.5, 0.0], "pass_rate(0.1, 0.9)"),
    ],
)
def test_the_first_rule_that_rejects_is_named(rewards: list[float], rejected: str) -> None:
    rules = rules_of([spread, pass_rate(0.1, 0.9)])
    assert rejected_by(_Rewarded(*rewards), rules) == rejected
    assert rejected_by(_Rewarded(*rewards), []) == ""
