"""Bugs planted on purpose, each of which the judge has to find.

early-ack   outcomes are acknowledged before they are on disk: a power cut loses some
zero        a rollout that failed is written as one with reward 0
twice       a rollout that is done is run, and recorded, again after a resume
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gymmesh_client.disk import Disk
from gymmesh_client.output import RunOutput

_HONEST_SYNCS: Final = 4
_FORGOTTEN: Final = 3


def plant(name: str) -> None:
    """Put a bug in, by its name."""
    PLANTS[name]()


def _early_ack() -> None:
    sync, calls = Disk.sync, itertools.count()

    def lazy(self: Disk, fd: int) -> None:
        # As long as it takes to begin a run properly.
        if next(calls) < _HONEST_SYNCS:
            sync(self, fd)

    Disk.sync = lazy  # type: ignore[method-assign]


def _zero() -> None:
    async def failed(
        self: RunOutput, rollout: str, attempt: int, boundary: int, row: bytes
    ) -> None:
        made: dict[str, Any] = json.loads(row)
        made.pop("failure")
        made |= {"reward": 0.0, "stop_reason": "MODEL_FINISHED"}
        made["verification"] = {"status": "VERIFIED", "reward": 0.0}
        await self.completed(rollout, attempt, json.dumps(made).encode())

    RunOutput.failed = failed  # type: ignore[method-assign]


def _twice() -> None:
    rollout_id, has_outcome = RunOutput.rollout_id, RunOutput.has_outcome
    forgotten: set[tuple[str, int]] = set()

    # Under an id of its own, for the journal refuses a second outcome of one rollout.
    def other_id(self: RunOutput, task_id: str, repeat_index: int) -> str:
        found = rollout_id(self, task_id, repeat_index)
        return f"{found}-again" if (task_id, repeat_index) in forgotten else found

    def other_ids(self: RunOutput, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
        return (other_id(self, task_id, repeat) for repeat in repeats)

    def forgets(self: RunOutput, task_id: str, repeat_index: int) -> bool:
        found = has_outcome(self, task_id, repeat_index)
        if found and len(forgotten) < _FORGOTTEN:
            forgotten.add((task_id, repeat_index))
            return False
        return found

    RunOutput.rollout_id = other_id  # type: ignore[method-assign]
    RunOutput.rollout_ids = other_ids  # type: ignore[method-assign]
    RunOutput.has_outcome = forgets  # type: ignore[method-assign]


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "early-ack": _early_ack,
    "zero": _zero,
    "twice": _twice,
}
