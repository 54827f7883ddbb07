"""Curves of several runs, and bounds of means when rollouts have no reward."""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_cli.main import cli
from gymmesh_client import UserError
from gymmesh_data.profile import ProfileOptions, compare, curve_of, profile, read_runs
from gymmesh_data.profile.bounds import difference_bounds, mean_bounds, rollout_bounds
from gymmesh_data.profile.totals import TaskTotals
from tests.unit.data.profile.test_profile import failure, runs
from tests.unit.data.rows import write_rows

FAST = ProfileOptions(resamples=200)

rewards = st.sampled_from([0.0, 0.25, 0.5, 1.0])
tasks = st.lists(
    st.tuples(st.lists(rewards, max_size=3), st.integers(0, 2)).filter(
        lambda one: one[0] or one[1]
    ),
    min_size=1,
    max_size=3,
)


def totals(found: list[tuple[list[float], int]]) -> list[TaskTotals]:
    """Tasks with these rewards, and so many failed rollouts."""
    made = []
    for at, (some, failed) in enumerate(found):
        task = TaskTotals("e", f"t{at}", (), b"", judged=len(some), failed=failed)
        task.reward = sum(some)
        made.append(task)
    return made


def filled(found: list[tuple[list[float], int]]) -> list[list[list[float]]]:
    """The tasks' rewards with every choice of 0 and 1 for those that are missing."""
    missing = sum(failed for _, failed in found)
    made = []
    for choice in itertools.product((0.0, 1.0), repeat=missing):
        left = iter(choice)
        made.append([[*some, *itertools.islice(left, failed)] for some, failed in found])
    return made


@given(tasks)
def test_bounds_are_those_of_every_choice_of_the_missing_rewards(
    found: list[tuple[list[float], int]],
) -> None:
    of_tasks = [statistics.mean(map(statistics.mean, one)) for one in filled(found)]
    bounds = mean_bounds(totals(found), (0.0, 1.0))
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((min(of_tasks), max(of_tasks)))
    of_rollouts = [statistics.mean(itertools.chain(*one)) for one in filled(found)]
    bounds = rollout_bounds(totals(found), (0.0, 1.0))
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((min(of_rollouts), max(of_rollouts)))
    assert bounds.missing == sum(failed for _, failed in found)


@given(st.data())
def test_bounds_of_a_difference_are_those_of_every_choice(data: st.DataObject) -> None:
    first = data.draw(tasks)
    second = data.draw(st.lists(st.sampled_from(first), min_size=len(first), max_size=len(first)))
    differences = [
        statistics.mean(map(statistics.mean, after)) - statistics.mean(map(statistics.mean, before))
        for before in filled(first)
        for after in filled(second)
    ]
    bounds = difference_bounds(list(zip(totals(first), totals(second), strict=True)), (0.0, 1.0))
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((min(differences), max(differences)))


def test_a_profile_has_bounds_only_when_rewards_are_missing(tmp_path: Path) -> None:
    whole = write_rows(tmp_path / "a.jsonl", runs({"t1": [1.0, 0.0]}))
    assert profile([whole], FAST).bounds is None
    partly = write_rows(tmp_path / "b.jsonl", runs({"t1": [1.0, None]}))
    write_rows(tmp_path / "b.failures.jsonl", [failure("t1", 2), failure("t2", 0, "VERIFIER")])
    bounds = profile([partly], FAST).bounds
    assert bounds is not None
    assert (bounds.low, bounds.high, bounds.missing) == (0.25, 1.0, 3)
    said = CliRunner().invoke(cli, ["profile", str(partly), "--reward-range", "-1", "1"])
    assert "bounds        [-0.500, 1.000] if 3 rollouts without a reward had any" in said.output
    wrong = CliRunner().invoke(cli, ["profile", str(partly), "--reward-range", "1", "0"])
    assert wrong.exit_code == 2
    assert "the lower number first" in wrong.output


def test_rewards_outside_the_range_extend_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", runs({"t1": [3.0, None]}))
    bounds = profile([path], FAST).bounds
    assert bounds is not None
    assert (bounds.low, bounds.high) == (1.5, 3.0)


def checkpoints(folder: Path) -> list[Path]:
    """Five runs of ten tasks: each solves two more; the last has a task that failed."""
    made = []
    for step in range(5):
        solved = {f"t{at}": [float(at < 2 * step)] for at in range(10)}
        if step == 4:
            del solved["t9"]
        path = write_rows(folder / f"step-{step}.jsonl", runs(solved))
        if step == 4:
            write_rows(folder / f"step-{step}.failures.jsonl", [failure("t9", 0)])
        made.append(path)
    return made


def test_a_curve_is_over_the_tasks_that_all_runs_judged(tmp_path: Path) -> None:
    curve = curve_of(read_runs(checkpoints(tmp_path), FAST), FAST)
    assert (curve.tasks, curve.attempted) == (9, 10)
    means = [one.mean.value for one in curve.points]
    assert means == pytest.approx([0, 2 / 9, 4 / 9, 6 / 9, 8 / 9])
    assert [one.missing for one in curve.points] == [0, 0, 0, 0, 1]
    assert all(one.bounds is None for one in curve.points[:4])
    last = curve.points[4].bounds
    assert last is not None
    assert (last.low, last.high) == pytest.approx((0.8, 0.9))


def test_the_bounds_of_a_comparison_count_tasks_that_failed(tmp_path: Path) -> None:
    *_, fourth, fifth = checkpoints(tmp_path)
    (found,) = compare([fourth, fifth], FAST)
    assert found.difference.value == pytest.approx(2 / 9)
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == pytest.approx((0.2, 0.3))


def test_compare_shows_and_draws_the_curve(tmp_path: Path) -> None:
    paths = list(map(str, checkpoints(tmp_path)))
    page = tmp_path / "curve.html"
    command = ["compare", *paths, "--resamples", "100"]
    said = CliRunner().invoke(cli, [*command, "--html", str(page)])
    assert said.exit_code == 0, said.output
    assert "all runs      over the 9 tasks that every run judged" in said.output
    assert "[0.800, 0.900]" in said.output
    assert 'aria-label="Mean reward by run"' in page.read_text()
    assert "step-3" in page.read_text()
    told = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert [one["run"] for one in told["curve"]["points"]] == paths
    two = CliRunner().invoke(cli, ["compare", *paths[:2], "--json", "--resamples", "100"])
    assert json.loads(two.stdout)["curve"] is None


def test_runs_without_a_task_that_all_judged_have_no_curve(tmp_path: Path) -> None:
    some = [{"t1": [1.0], "t2": [1.0]}, {"t1": [1.0]}, {"t2": [1.0]}]
    paths = [write_rows(tmp_path / f"{at}.jsonl", runs(one)) for at, one in enumerate(some)]
    with pytest.raises(UserError, match="no task was judged in all 3 runs"):
        curve_of(read_runs(paths, FAST), FAST)
