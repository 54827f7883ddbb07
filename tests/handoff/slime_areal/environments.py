"""Environments that the tests collect in."""

from __future__ import annotations

from collections import Counter

from gymmesh_resource import Environment, Rollout, Session, Transcript, Turn, Verdict
from tests.handoff.slime_areal.router import ASKED_AGAIN, WORDS


class Counting(Environment[Counter[str]]):
    """Asks again until it has six answers; the last must end with six."""

    state = Counter

    async def next_turn(self, session: Session[Counter[str]], new: Transcript) -> Turn:
        session.state["turns"] += 1
        return Turn(ASKED_AGAIN) if session.state["turns"] < len(WORDS) else Turn(done=True)

    async def verify(self, session: Session[Counter[str]], rollout: Rollout) -> Verdict | float:
        return float(rollout.answer.endswith("six"))


class Breaking(Counting):
    """Its verifier breaks at a wrong answer."""

    async def verify(self, session: Session[Counter[str]], rollout: Rollout) -> Verdict | float:
        if rollout.answer.endswith("seven"):
            raise RuntimeError("the verifier is gone")
        return 0.75
