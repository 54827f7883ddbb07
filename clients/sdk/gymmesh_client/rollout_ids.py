"""The ids of rollouts, and the 16 bytes that stand for each in the journal. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 16
# A rollout in flight is asked for its key again and again, and that takes a digest.
_KNOWN: Final = 1 << 13


def rollout_id(run_id: str, task_id: str, repeat_index: int) -> str:
    """The id that stands for (run, task, repeat): the same for every attempt."""
    return next(rollout_ids(run_id, task_id, (repeat_index,)))


def rollout_ids(run_id: str, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
    """`rollout_id` of several repeats of a task."""
    begin = f"{run_id}\0{task_id}\0"
    for repeat in repeats:
        number = str(repeat)
        digest = hashlib.blake2b((begin + number).encode(), digest_size=10).hexdigest()
        # The repeat stands at the end, where a replayed model looks for it.
        yield f"ro-{digest}-{number}"


@lru_cache(maxsize=_KNOWN)
def rollout_key(rollout: str) -> bytes:
    """16 bytes that stand for a rollout's id."""
    return hashlib.blake2b(rollout.encode(), digest_size=KEY_BYTES).digest()
