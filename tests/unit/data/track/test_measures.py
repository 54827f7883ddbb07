"""What a tracker gets of a run's figures."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import Figures, Tally
from gymmesh_data.track.measures import (
    Recent,
    figures_of,
    measures_of,
    most_of,
    plain_name,
)


def row(reward: float | None = 1.0, **metadata: Any) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 20}
    return json.dumps(
        {"reward": reward, "response": {"usage": usage}, "metadata": metadata, "extra": [1, "é"]}
    ).encode()


def figures(tally: Tally) -> Figures:
    return Figures(
        tally=tally, state="running", why="", in_flight=3, queued=1, ending=0, retrying=0, width=4,
        concurrency=4, away={}, groups=0, held=False, rollouts_per_s=2.0, tokens_per_s=50.0,
    )  # fmt: skip


def tally(*rewards: float | None) -> Tally:
    counted = Tally()
    for number, reward in enumerate(rewards):
        status = "PENDING" if reward is None else "VERIFIED"
        counted.add_row(
            {
                "task_id": f"t-{number}",
                "stop_reason": "MODEL_FINISHED",
                "verification": {"status": status},
                "reward": reward,
                "response": {"usage": {"input_tokens": 10, "output_tokens": 5}},
            }
        )
    return counted


def test_a_run_as_a_whole() -> None:
    counted = tally(1.0, 0.0, 0.5, None)
    counted.add_failure(
        {"failure": {"boundary": "MODEL", "status": {"reason": "X", "message": ""}}}
    )
    found = measures_of(figures(counted), {"finished": 2, "stale": 1})
    assert found["reward/mean"] == 0.5
    assert found["pass_rate/mean"] == 1 / 3
    assert (found["rollouts/completed"], found["rollouts/failed"]) == (4, 1)
    assert (found["failures/MODEL"], found["causes/MODEL_X"]) == (1, 1)
    assert (found["unjudged/PENDING"], found["stop_reasons/MODEL_FINISHED"]) == (1, 4)
    assert (found["tokens/input"], found["tokens/output"]) == (40, 20)
    assert (found["rollouts/per_s"], found["tokens/output_per_s"]) == (2.0, 50.0)
    assert (found["groups/finished"], found["groups/stale"]) == (2, 1)


def test_without_a_verdict_there_is_no_reward() -> None:
    found = measures_of(figures(tally(None)))
    assert not [name for name in found if name.startswith(("reward", "pass_rate"))]


def test_what_ended_lately_is_measured_once() -> None:
    recent = Recent()
    recent.add(figures_of(row(1.0, steps_taken=2)))
    recent.add(figures_of(row(None, steps_taken=6)))
    found = recent.take()
    assert found["reward/recent"] == 1.0
    assert (found["length/model_calls"], found["length/model_calls_max"]) == (4, 6)
    assert found["length/output_tokens"] == 20
    assert "staleness/recent" not in found
    assert recent.take() == {}


def test_staleness_is_against_the_newest_weights_so_far() -> None:
    recent = Recent()
    for versions in ([3], [5, 7], [4], [9]):
        recent.add(figures_of(row(weights_versions=versions)))
    found = recent.take()
    assert found["staleness/recent"] == (0 + 2 + 3 + 0) / 4
    assert found["staleness/recent_max"] == 3
    recent.add(figures_of(row(weights_versions=[8])))
    assert recent.take()["staleness/recent"] == 1  # the newest stays known


def test_rows_that_cannot_be_measured_are_counted() -> None:
    recent = Recent()
    for line in (b"", b"[]", b'{"reward": "much"}', b'{"metadata": {"steps_taken": "two"}}'):
        recent.add(figures_of(line))
    assert recent.unread == 4
    assert recent.take() == {}


def test_what_is_not_measured_is_skipped_whatever_it_is() -> None:
    line = b'{"x": 123456789012345678901234567890, "y": "\\ud800", "reward": 0.5, "metadata": null}'
    found = figures_of(line)
    assert found is not None
    assert found.reward == 0.5


@given(st.lists(st.floats(-10, 10), min_size=1))
def test_recent_rewards_are_their_mean(rewards: list[float]) -> None:
    recent = Recent()
    for reward in rewards:
        recent.add(figures_of(row(reward)))
    mean = recent.take()["reward/recent"]
    assert math.isclose(mean, math.fsum(rewards) / len(rewards), abs_tol=1e-9)


@given(st.text())
def test_names_are_what_every_tracker_takes(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", plain_name(name))


def test_the_names_that_a_run_brings_are_bounded() -> None:
    found = most_of([(f"reason {number}", number) for number in range(1000)])
    assert len(found) == 40
    assert found[0] == ("reason 999", 999)
