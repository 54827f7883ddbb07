from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.timers import cancel_and_wait, doubled_s


def test_waits_double_up_to_the_longest() -> None:
    assert [doubled_s(0.5, times, 3.0) for times in (1, 2, 3, 4, 10_000)] == [0.5, 1, 2, 3, 3]


@given(st.floats(0.001, 10), st.integers(1, 10**6))
def test_a_wait_is_never_shorter_than_the_one_before(first_s: float, times: int) -> None:
    assert first_s <= doubled_s(first_s, times) <= doubled_s(first_s, times + 1) < 1e12


async def test_tasks_are_over_whatever_they_raise() -> None:
    ended: list[str] = []

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("fails")
            raise ValueError("while it ended")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    tasks = [asyncio.create_task(fails()), asyncio.create_task(waits())]
    await asyncio.sleep(0)
    await cancel_and_wait(*tasks, None)
    assert ended == ["fails", "waits"]
    assert tasks[1].cancelled()
    with pytest.raises(ValueError, match="while it ended"):
        tasks[0].result()
    await cancel_and_wait()
