"""Sums of two numbers: an environment that a tiny model can learn."""

from __future__ import annotations

import random
import re
from typing import Any

from gymmesh import Environment, Rollout, Session


class Sums(Environment[None]):
    """Adds two numbers; the last number of the answer counts."""

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        """1 for the right sum, else 0."""
        numbers = re.findall("[0-9]+", rollout.answer)
        return float(numbers[-1:] == [rollout.task.require("expected_answer", str)])


def tasks(most: int, question: str = "{}+{}=") -> list[dict[str, Any]]:
    """Every sum of two numbers from 0 to `most`, in a mixed order.

    Args:
        question: how it is asked.
    """
    pairs = [(left, right) for left in range(most + 1) for right in range(most + 1)]
    random.Random(0).shuffle(pairs)
    return [
        {
            "task_id": f"sum-{left}-{right}",
            "responses_create_params": {"input": question.format(left, right)},
            "expected_answer": str(left + right),
        }
        for left, right in pairs
    ]
