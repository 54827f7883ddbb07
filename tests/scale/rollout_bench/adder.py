"""The benchmark's environment: one tool, verdict by string match."""

from __future__ import annotations

from gymmesh_resource import Environment, Rollout, Session, tool


class Adder(Environment[None]):
    """Adds two numbers."""

    @tool
    async def add(self, left: int, right: int) -> str:
        """Add two numbers."""
        return str(left + right)

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(rollout.task.payload["wanted"] in rollout.text)
