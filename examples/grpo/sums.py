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


def tasks(most: int) -> list[dict[str, Any]]:
    """Every sum of two numbers from 0 to `most`, in a mixed order."""
    pairs = [(left, right) for left in range(most + 1) for right in range(most + 1)]
    random.Random(0).shuffle(pairs)
    return [
        {
            "task_id": f"sum-{left}-{right}",
            "prompt": f"{left}+{right}=",
            "expected_answer": str(left + right),
        }
        for left, right in pairs
    ]
