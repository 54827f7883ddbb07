"""Says loudly that slime's tests did not run."""

from __future__ import annotations

from tests.handoff.slime_areal.slime_source import require_slime


def test_slimes_checkout_is_here() -> None:
    require_slime()
