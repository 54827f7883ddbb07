"""Which repeat of its task a rollout is, for trainers that don't say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from gymmesh_responses import dumps_sorted


class Repeats:
    """Numbers the rollouts of each task. It matters where the task has a seed: with the same one,
    a group would be one answer many times.
    """

    def __init__(self) -> None:
        self._times: Counter[bytes] = Counter()

    def next(self, task: Mapping[str, Any]) -> int:
        """The repeat of a rollout that begins now, from 0; always 0 for a task without a seed."""
        if task.get("seed") is None:
            return 0
        key = blake2b(dumps_sorted(task), digest_size=16).digest()
        self._times[key] += 1
        return self._times[key] - 1
