"""What a step warns of, and what it doesn't."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import RolloutGroup, TrainerCollector, spread
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.test_steps import held_but_first, ones, quiet


async def test_an_error_in_an_entered_step_is_no_reason_to_advise_entering_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(group: RolloutGroup) -> Iterator[RolloutGroup]:
        raise UserError(f"{group.task.id}: can't be used")

    engine = held_but_first()
    async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
        step = collector.step(rows(3))

        async def trains() -> list[RolloutGroup]:
            async with step:
                return [one async for group in step for one in fails(group)]

        with pytest.raises(UserError, match="t0: can't be used"):
            await trains()
        gc.collect()  # asyncio closes the generator that the comprehension left
        await quiet(engine)
        assert (step.ended, step.counts["left"]) == ("left", 2)
    assert not caplog.messages


async def test_rules_that_reject_nearly_everything_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ones()
    async with TrainerCollector(Sums, model=engine.model, repeats=1) as collector:
        async with collector.step(rows(50), groups=2, keep=spread) as step:
            assert [group async for group in step] == []
        async with collector.step(rows(29), groups=3, keep=spread) as few:
            assert [group async for group in few] == []
    assert [one for one in caplog.messages if "at_most" in one] == [
        "step 1 has 0 of 2 groups, and its rules rejected 20 groups (spread 20). The step "
        "continues until it has all groups. To limit the step, pass at_most=…"
    ]
    assert (step.ended, few.ended) == ("tasks", "tasks")


async def test_a_traceback_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sums):
        async def verify(self, session: Any, rollout: Any) -> float:
            raise KeyError("nothing")

    async with TrainerCollector(Broken, model=ones().model, repeats=4) as collector:
        groups = [one async for one in collector.step(rows(2))]
    assert [len(one.failed) for one in groups] == [4, 4]
    assert sum(record.exc_info is not None for record in caplog.records) == 1
