"""Random programs against a log of the truth: some hundred sessions of `make capture-law`."""

from __future__ import annotations

import pytest

from gymmesh_agent.gateway.tree import placing
from tests.capture_law.sessions import run_sessions


def test_the_tree_is_right_or_says_that_it_does_not_know() -> None:
    tally = run_sessions("unit", 300)
    assert tally.wrong == []
    assert tally.links["unknown"] < 0.03 * tally.links.total()
    assert min(tally.links[kind] for kind in ("continuation", "fork", "side")) > 20


def test_a_tree_that_guesses_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "only", lambda calls: calls[0] if calls else None)
    assert any(run_sessions(f"unit {part}", 100).wrong for part in range(15))
