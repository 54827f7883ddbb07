"""The summary: pass@k against its definition, and what is counted."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputFiles, RunSummary, Tally, pass_at_k, render, summarize
from gymmesh_client.summary import SOLVED, counted, histogram, summary_path, write_summary

DOCS = (Path(__file__).parents[3] / "docs/how-to/collecting.md").read_text(encoding="utf-8")


@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=8), k=st.integers(1, 8))
def test_pass_at_k_is_the_share_of_draws_with_a_success(outcomes: list[bool], k: int) -> None:
    n, c = len(outcomes), sum(outcomes)
    got = pass_at_k([(n, c)], k)
    if k > n:
        assert got is None
        return
    draws = [any(draw) for draw in combinations(outcomes, k)]
    assert got == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_is_the_mean_over_tasks() -> None:
    assert pass_at_k([(2, 2), (2, 0), (1, 1)], 2) == 0.5
    assert pass_at_k([], 1) is None
    with pytest.raises(ValueError, match="at least 1"):
        pass_at_k([(1, 1)], 0)


def row(task: str, reward: float | None, status: str = "VERIFIED") -> dict[str, Any]:
    return {
        "task_id": task,
        "reward": reward,
        "verification": {"status": status},
        "stop_reason": "MODEL_FINISHED",
        "response": {"usage": {"input_tokens": 3, "output_tokens": 2}},
    }


def failure(boundary: str) -> dict[str, Any]:
    status = {"code": 14, "message": "down", "reason": "MODEL_UNREACHABLE"}
    return {"failure": {"boundary": boundary, "status": status}}


def test_the_summary_file_is_the_summary(tmp_path: Path) -> None:
    tally = Tally(put_back=3)
    tally.add_row(row("t-1", 1.0), kept=True)
    waited = replace(counted(row("t-2", 0.0)), model_calls=2, model_queue_us=4000)
    tally.add(waited)
    tally.add_failure(failure("TOOL"))
    tally.add_retry(pb.BOUNDARY_MODEL, "MODEL_TIMEOUT")
    tally.add_retry(99, "ODD")
    summary = summarize(
        tally,
        requested=5,
        wall_s=2.0,
        repeats=1,
        output="o",
        failures_output="f",
        run_id="run-1",
        why="drained",
        concurrency=8,
    )
    path = summary_path(OutputFiles(tmp_path / "rows.jsonl.zst"))
    assert path.name == "rows.summary.json"
    write_summary(path, summary)
    kept = json.loads(path.read_text())
    assert kept == summary.to_dict()
    assert kept["retries"] == {"99 ODD": 1, "MODEL MODEL_TIMEOUT": 1}
    assert kept["causes"] == {"TOOL MODEL_UNREACHABLE": 1}
    assert (kept["put_back"], kept["ended_early"], kept["not_finished"]) == (3, "drained", 2)
    assert (kept["output_tokens"], kept["output_tokens_per_s"]) == (4, 1.0), (
        "kept ones took no time"
    )
    assert kept["model_queue_s"] == 0.002
    documented = DOCS.partition("## The summary and pass@k")[2].partition("\n## ")[0]
    assert [key for key in kept if f"`{key}`" not in documented] == []


def test_retries_of_model_calls_are_those_of_completed_rollouts() -> None:
    retried = {"retries": [{"reason": "MODEL_SERVER_ERROR", "count": 2}]}
    tally = Tally()
    tally.add_row(row("a", 1.0) | {"calls": [retried, {}, retried]}, kept=True)
    tally.add_failure(failure("MODEL") | {"calls": [retried]})
    summary = summarize(tally, requested=2, wall_s=2.0, repeats=1, output="r", failures_output="f")
    assert summary.to_dict()["model_retries"] == {"MODEL_SERVER_ERROR": 4}
    said = "4 retries in completed rollouts: 4 MODEL_SERVER_ERROR"
    assert f"model calls   {said}" in render(summary).splitlines()
    taken = counted(row("b", 1.0) | {"calls": [retried | {"timings": {"endpoint_us": 4_000_000}}]})
    tally.add(replace(taken, model_calls=1, model_queue_us=3000))
    (line,) = (one for one in render(summary).splitlines() if one.startswith("model calls"))
    assert line == (
        "model calls   1 in completed rollouts, 2 at once on average, at most 0 rollouts in "
        "flight; mean wait for a slot 3 ms; 6 retries: 6 MODEL_SERVER_ERROR"
    )


def test_what_is_counted() -> None:
    tally = Tally()
    tally.add_row(row("a", 1.0), kept=True)
    tally.add_row(row("a", 0.0))
    tally.add_row(row("b", None, "PENDING"))
    tally.add_failure(failure("MODEL"))
    summary = summarize(tally, requested=5, wall_s=2.0, repeats=2, output="r", failures_output="f")
    report = summary.to_dict()
    assert report["mean_reward"] == 0.5
    assert report["pass_at"] == {"1": 0.5, "2": 1.0}
    assert report["unjudged"] == {"PENDING": 1}
    assert report["failures"] == {"MODEL": 1}
    assert report["not_finished"] == 1
    # One was kept from an earlier run, so three outcomes in two seconds.
    assert report["rollouts_per_s"] == 1.5
    assert (report["input_tokens"], report["output_tokens"]) == (9, 6)
    text = render(summary)
    assert "3 completed (1 of them kept from an earlier run), 1 failed, of 5" in text
    assert "resume with --resume" in text
    assert tally.first_failure == "MODEL MODEL_UNREACHABLE: down"


def test_unjudged_and_failed_do_not_lower_the_mean() -> None:
    tally = Tally()
    tally.add_row(row("a", 1.0))
    tally.add_row(row("a", None, "SKIPPED"))
    tally.add_failure(failure("TOOL"))
    assert tally.mean_reward == 1.0
    assert Tally().mean_reward is None


@given(st.dictionaries(st.floats(-10, 10), st.integers(1, 5), max_size=40))
def test_a_histogram_counts_everything_once(rewards: dict[float, int]) -> None:
    bars = histogram(rewards)
    assert sum(count for _, count in bars) == sum(rewards.values())
    assert len(bars) <= 10


@given(st.lists(st.floats(-2, 2) | st.sampled_from([0.0, 1.0, 0.9996]), max_size=30))
def test_rewards_are_counted_by_thousandths(rewards: list[float]) -> None:
    tally = Tally()
    for reward in rewards:
        tally.add_row(row("t", reward))
    assert tally.rewards == Counter(round(reward, 3) for reward in rewards)
    solved = sum(reward >= SOLVED for reward in rewards)
    assert tally.per_task == ({"t": [len(rewards), solved]} if rewards else {})


def test_the_first_rewards_that_are_not_positive_are_explained() -> None:
    tally = Tally()
    for number in range(5):
        verification = {"status": "VERIFIED", "explanation": f"expected 4, got {number}"}
        tally.add_row(
            {
                "task_id": f"t{number}",
                "stop_reason": "MODEL_FINISHED",
                "reward": float(number == 4),
                "verification": verification,
            }
        )
    text = render(RunSummary(5, 1.0, tally, {}, "o", "f"))
    assert "explained     t0: 0, expected 4, got 0\n              t1: 0, expected" in text
    assert "got 3" not in text
    assert "got 4" not in text
