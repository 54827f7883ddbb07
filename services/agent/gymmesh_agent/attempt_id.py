"""Which attempt of which rollout it is."""

from __future__ import annotations

import msgspec


class AttemptId(msgspec.Struct):
    """What an attempt is known by.

    Attributes:
        rollout_id: the rollout.
        attempt: the attempt's number.
        name: `<rollout_id>/<attempt>`, which the ids of its requests begin with.
        seed: the task's seed; None: it has none.
    """

    rollout_id: str
    attempt: int
    name: str
    seed: int | None
