"""Queries over our metrics: what they say, and that labels are checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deploy.observe.dashboard import Dashboard, Panel, Query, Row, to_json
from deploy.observe.families import FAMILIES as m
from deploy.observe.promql import Scope
from deploy.observe.rewards import mean_reward
from gymmesh_runtime.telemetry.instruments import Histogram

FIVE = Scope("5m")
CHOSEN = Scope("5m", {"agent": '=~"$agent"', "model": '=~"$model"', "instance": '="a:1"'})


def test_a_counter() -> None:
    assert FIVE.rate(m.ROLLOUTS) == "sum(rate(gymmesh_rollouts_total[5m]))"
    assert (
        FIVE.rate(m.ROLLOUTS, "outcome", where='agent="x"')
        == 'sum by (outcome) (rate(gymmesh_rollouts_total{agent="x"}[5m]))'
    )


def test_choices_hold_where_a_metric_has_the_label() -> None:
    assert CHOSEN.select(m.ROLLOUTS) == 'gymmesh_rollouts_total{agent=~"$agent",instance="a:1"}'
    assert CHOSEN.select(m.MODEL_CALLS, where='outcome!="completed"') == (
        'gymmesh_model_calls_total{model=~"$model",instance="a:1",outcome!="completed"}'
    )


def test_a_histogram() -> None:
    assert FIVE.quantile(0.95, m.RPC_SECONDS, "method") == (
        "histogram_quantile(0.95, sum by (le, method) (rate(gymmesh_rpc_seconds_bucket[5m])))"
    )
    assert FIVE.mean(m.RPC_SECONDS) == (
        "sum(rate(gymmesh_rpc_seconds_sum[5m])) / sum(rate(gymmesh_rpc_seconds_count[5m]))"
    )


@pytest.mark.parametrize("asked", [FIVE.mean, FIVE.total, FIVE.count])
def test_a_histogram_with_buckets_below_0_has_no_sum(asked: Callable[[Histogram], str]) -> None:
    with pytest.raises(ValueError, match="gymmesh_rewards has buckets below 0"):
        asked(m.REWARDS)


def test_the_mean_reward() -> None:
    assert mean_reward(FIVE, "environment") == (
        '(sum by (environment) (rate(gymmesh_rewards_absolute_total{sign="positive"}[5m]))'
        ' - sum by (environment) (rate(gymmesh_rewards_absolute_total{sign="negative"}[5m])))'
        ' / sum by (environment) (rate(gymmesh_verifications_total{status="verified"}[5m]))'
    )


def test_a_share_is_0_where_nothing_matches_and_nothing_where_nothing_happens() -> None:
    assert FIVE.share(m.VERIFICATIONS, of='status="fault"') == (
        '(sum(rate(gymmesh_verifications_total{status="fault"}[5m]))'
        " or 0 * sum(rate(gymmesh_verifications_total[5m])))"
        " / (sum(rate(gymmesh_verifications_total[5m])) > 0)"
    )


@pytest.mark.parametrize(
    ("by", "where"), [(["tool"], ""), ([], 'tool="add"'), ([], 'agent="a",tool=~"b"')]
)
def test_a_label_that_a_metric_lacks(by: list[str], where: str) -> None:
    with pytest.raises(ValueError, match="gymmesh_rollouts_total has no label tool"):
        FIVE.rate(m.ROLLOUTS, *by, where=where)


def test_panels_that_do_not_fill_a_row() -> None:
    panel = Panel("A", [Query("up")], "What it shows.", width=9)
    with pytest.raises(ValueError, match="'Row' do not fill the width"):
        to_json(Dashboard("a", "A", "", [], [Row("Row", [panel])]))
