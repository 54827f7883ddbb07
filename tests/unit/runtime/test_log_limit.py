"""What strangers can cause over and over is written once a second, with a count."""

from __future__ import annotations

from gymmesh_runtime.telemetry.log_limit import LogLimit


def test_the_first_of_each_kind_passes_and_the_rest_are_counted() -> None:
    now = 10.0
    lines = LogLimit(clock=lambda: now)
    assert [lines.held_back("a") for _ in range(4)] == [0, None, None, None]
    assert lines.held_back("b") == 0
    now = 10.9
    assert lines.held_back("a") is None
    now = 11.0
    assert lines.held_back("a") == 4
    now = 99.0
    assert [lines.held_back("a"), lines.held_back("b")] == [0, 0]


def test_kinds_without_end_take_no_memory_without_end() -> None:
    lines = LogLimit(clock=lambda: 0.0)
    for kind in range(30_001):
        assert lines.held_back(kind) == 0
    assert lines.held_back(30_000) is None
    assert lines.held_back(0) == 0  # forgotten
