"""A few damaged files, judged; `make chaos-damage` damages 250."""

from __future__ import annotations

from tests.chaos.damage import campaign


def test_nothing_that_was_changed_is_believed_and_nothing_is_lost() -> None:
    assert campaign(seed=1, count=36) == []
