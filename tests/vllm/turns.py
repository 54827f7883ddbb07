"""An environment that speaks after each answer, for a model that calls no tools."""

from __future__ import annotations

from gymmesh import Transcript
from gymmesh_resource import Environment, Rollout, Session, Turn


class Turns(Environment[list[str]]):
    """Asks twice more, and is content with any answer."""

    verify_needs_session = False

    def create_state(self, task: object, seed: int) -> list[str]:
        return []

    def next_turn(self, session: Session[list[str]], new: Transcript) -> Turn:
        session.state.append(new.answer)
        return Turn("go on") if len(session.state) < 3 else Turn(done=True)

    def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 1.0
