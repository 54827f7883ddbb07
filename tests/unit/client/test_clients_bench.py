"""The bench of the clients: what it counts, and what it refuses to count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scale.clients_bench.collectors import (
    CollectorFailed,
    Order,
    Sample,
    check,
    command,
    cost,
)

COUNT = 8


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order("127.0.0.1:1", tmp_path / "tasks.jsonl", tmp_path, COUNT, 4)


def write(order: Order, rows: list[dict[str, Any]]) -> None:
    (order.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def whole() -> list[dict[str, Any]]:
    return [{"repeat_index": number, "reward": 1.0} for number in range(COUNT)]


def test_the_start_is_left_out() -> None:
    samples = [
        Sample(at_s=0.0, rows=0, cpu_s=0.5, mesh_s=10.0),
        Sample(at_s=4.0, rows=2, cpu_s=1.0, mesh_s=10.2),
        Sample(at_s=5.0, rows=5, cpu_s=1.1, mesh_s=10.3),
        Sample(at_s=6.0, rows=8, cpu_s=1.6, mesh_s=10.8),
        Sample(at_s=9.0, rows=8, cpu_s=2.0, mesh_s=10.9),
    ]
    found = cost(samples, COUNT, whole_s=2.4)
    assert found.cpu_ms == pytest.approx(100.0)
    assert found.mesh_ms == pytest.approx(100.0)
    assert found.per_s == pytest.approx(3.0)
    assert found.whole_ms == pytest.approx(300.0)


def test_rows_that_come_all_at_once_measure_nothing() -> None:
    samples = [
        Sample(at_s=0.0, rows=0, cpu_s=0.0, mesh_s=0.0),
        Sample(at_s=1.0, rows=7, cpu_s=1.0, mesh_s=1.0),
        Sample(at_s=1.1, rows=8, cpu_s=1.0, mesh_s=1.0),
    ]
    with pytest.raises(CollectorFailed, match="of 8 rollouts only 1 came"):
        cost(samples, COUNT, whole_s=1.0)


def test_all_collected(order: Order) -> None:
    write(order, whole())
    check("go", order, {"completed": COUNT, "failed": 0})


@pytest.mark.parametrize(
    ("rows", "summary", "said"),
    [
        (whole()[1:], {"completed": COUNT, "failed": 0}, "7 rows, 7 different repeats"),
        ([*whole()[1:], whole()[1]], {"completed": COUNT, "failed": 0}, "7 different repeats"),
        (
            [*whole()[1:], {"repeat_index": 0, "reward": 0.0}],
            {"completed": COUNT, "failed": 0},
            "7 rows with reward 1",
        ),
        (whole(), {"completed": 7, "failed": 0}, "7 completed by its own account"),
        (whole(), {"completed": COUNT, "failed": 2}, "2 failed"),
    ],
)
def test_what_is_not_whole_does_not_count(
    order: Order, rows: list[dict[str, Any]], summary: dict[str, int], said: str
) -> None:
    write(order, rows)
    with pytest.raises(CollectorFailed, match=f"go, 8 rollouts: {said}"):
        check("go", order, summary)


def test_a_failure_on_disk_counts(order: Order) -> None:
    write(order, whole())
    (order.folder / "rows.failures.jsonl").write_text("{}\n")
    with pytest.raises(CollectorFailed, match="1 failed"):
        check("gym-cli", order, {"completed": COUNT, "failed": 0})


def test_a_program_that_is_not_built_is_named(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"rust": ["/nowhere/collect"]}
    monkeypatch.setattr("tests.scale.clients_bench.collectors.PROGRAMS", programs)
    with pytest.raises(CollectorFailed, match="/nowhere/collect is not there: `make bench-client"):
        command("rust", order)
