"""Environments and agents that the tests of trainers collect in."""

from __future__ import annotations

from typing import Any

from gymmesh_resource import Environment, Rollout, Session, tool


class Sums(Environment[None]):
    """Adds numbers."""

    @tool
    async def add(self, session: Session[None], left: int, right: int) -> str:
        """Add two numbers.

        Args:
            left: one.
            right: the other.
        """
        return str(left + right)

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        return float(rollout.answer.strip() == rollout.task.require("answer", str))


def rows(count: int) -> list[dict[str, Any]]:
    """Tasks of Sums."""
    return [
        {"task_id": f"t{number}", "prompt": f"What is {number} + 1?", "answer": str(number + 1)}
        for number in range(count)
    ]
