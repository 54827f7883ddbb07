"""Means of rewards whose sums exceed what a float can hold."""

from __future__ import annotations

import json
import sys

import pytest

from gymmesh_client.means import mean_of
from gymmesh_client.summary import Tally, histogram, render, summarize

MOST = sys.float_info.max


@pytest.mark.parametrize(
    ("counts", "mean"),
    [
        ([(0.1, 3)], 0.1),
        ([(1.0, 1), (0.0, 2)], 1 / 3),
        ([(1e308, 7)], 1e308),
        ([(MOST, 3), (-MOST, 3)], 0.0),
        ([(MOST, 3)], MOST),
        ([(-MOST, 5)], -MOST),
        ([(5.0, 0)], None),
        ([], None),
    ],
)
def test_a_mean_is_finite(counts: list[tuple[float, int]], mean: float | None) -> None:
    found = mean_of(counts)
    assert found == (mean if mean is None else pytest.approx(mean, rel=1e-15))


def test_the_summary_of_huge_rewards_is_json_and_text() -> None:
    tally = Tally()
    for number in range(24):
        reward = (MOST if number % 2 else -MOST) / (1 + number)
        verdict = {"status": "VERIFIED"}
        tally.add_row({"task_id": f"t{number}", "reward": reward, "verification": verdict})
    summary = summarize(tally, requested=24, wall_s=1.0, repeats=1, output="o", failures_output="f")
    json.dumps(summary.to_dict(), allow_nan=False)
    assert "rewards" in render(summary)
    assert sum(count for _, count in histogram(tally.rewards)) == 24


def test_pass_at_k_of_an_unfinished_run_says_over_how_many_tasks() -> None:
    tally = Tally()
    for task, reward in (("a", 1.0), ("a", 0.0), ("b", 1.0)):
        tally.add_row({"task_id": task, "reward": reward, "verification": {"status": "VERIFIED"}})
    unfinished = summarize(
        tally, requested=8, wall_s=1.0, repeats=2, output="o", failures_output="f"
    )
    assert unfinished.to_dict()["pass_at_tasks"] == {"1": 2, "2": 1}
    lines = render(unfinished).splitlines()
    assert "pass@1        0.750 over 2 of 4 tasks" in lines
    assert "pass@2        1.000 over 1 of 4 tasks" in lines
    tally.add_row({"task_id": "b", "reward": 1.0, "verification": {"status": "VERIFIED"}})
    whole = summarize(tally, requested=4, wall_s=1.0, repeats=2, output="o", failures_output="f")
    assert "pass@2        1.000" in render(whole).splitlines()
