"""The environment of the chaos runs: a till whose state tells whether every call acted once."""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh_resource import Environment, Rollout, Session, tool


@dataclass
class Drawer:
    total: int = 0


class Till(Environment[Drawer]):
    """A till."""

    state = Drawer

    @tool
    async def ring(self, session: Session[Drawer], amount: int) -> str:
        """Ring an amount up."""
        session.state.total += amount
        return "ok"

    async def verify(self, session: Session[Drawer], rollout: Rollout) -> float:
        wanted = rollout.task.payload["total"]
        if session.state.total != wanted:
            return 0.0
        return 1.0 if rollout.answer == f"The till says {wanted}." else 0.5
