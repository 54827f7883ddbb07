"""Which repeat of its task a rollout is, for trainers that don't say it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from gymmesh_responses import dumps_sorted

# A repeat is a number of 32 bits: so many processes, and so many repeats of a task in each.
_PROCESSES: Final = 1 << 16
_REPEATS: Final = 1 << 16


def first_repeat(process: int) -> int:
    """The first repeat of a task in a process of the trainer's, whose number this is, from 0.

    A trainer may run one group's rollouts in several processes. Were each to number them from 0,
    two would have the same seed, and the same answer.
    """
    return process % _PROCESSES * _REPEATS


def rank_of_process() -> int:
    """The number of this process as PyTorch's launchers set it (`RANK`); 0 without them."""
    said = os.environ.get("RANK", "")
    return int(said) if said.isdecimal() else 0


class Repeats:
    """Numbers the rollouts of each task. It matters where the task has a seed: with the same one,
    a group would be one answer many times.

    process: the number of this process among those of the trainer.
    """

    def __init__(self, process: int = 0) -> None:
        self._first = first_repeat(process)
        self._times: Counter[bytes] = Counter()

    def next(self, task: Mapping[str, Any]) -> int:
        """The repeat of a rollout that begins now; always 0 for a task without a seed."""
        if task.get("seed") is None:
            return 0
        key = blake2b(dumps_sorted(task), digest_size=16).digest()
        number, self._times[key] = self._times[key], self._times[key] + 1
        return self._first + number % _REPEATS
