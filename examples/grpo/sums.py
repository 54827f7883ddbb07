"""Sums of two numbers, answered in plain digits: an environment that a tiny model can learn."""

from __future__ import annotations

import random
from typing import Any

from gymmesh import Environment, Rollout, Session


class Sums(Environment[None]):
    """Adds two numbers; the answer is the digits alone."""

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        """1 for the right sum, else 0."""
        return float(rollout.answer.strip() == rollout.task.require("expected_answer", str))


def tasks(most: int, instructions: str = "") -> list[dict[str, Any]]:
    """Every sum of two numbers from 0 to `most`, in a mixed order.

    Args:
        instructions: for models that need to be told what to answer with.
    """
    pairs = [(left, right) for left in range(most + 1) for right in range(most + 1)]
    random.Random(0).shuffle(pairs)
    told = {"instructions": instructions} if instructions else {}
    return [
        {
            "task_id": f"sum-{left}-{right}",
            "responses_create_params": {"input": f"{left}+{right}=", **told},
            "expected_answer": str(left + right),
        }
        for left, right in pairs
    ]
