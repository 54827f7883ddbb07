"""Batches of single rollouts."""

from __future__ import annotations

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import TrainerCollector
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine


async def test_a_bad_task_is_refused_by_its_place_before_any_rollout_begins() -> None:
    engine = CountingEngine(lambda prompt, number: "1")
    async with TrainerCollector(Sums, model=engine.model) as collector:
        with pytest.raises(UserError, match=r"^tasks\[2\]"):
            await collector.many([*rows(2), 5])  # type: ignore[list-item]
        assert engine.calls == 0
