"""An environment that prime-rl's environment server plays, by tools and turns."""

from __future__ import annotations

from gymmesh_resource import Rollout, Session
from tests.handoff.trainers.test_append_only import Hut


class ScoredHut(Hut):
    """Rewards the last answer; it can't judge one of them."""

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        if "broken" in rollout.answer:
            raise RuntimeError("the verifier is broken")
        return float("No more" in rollout.answer)
