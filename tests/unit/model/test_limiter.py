from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_model.routing import ConcurrencyLimiter
from gymmesh_runtime.errors import MeshError

LONG_S = 30.0


async def waiting(limiter: ConcurrencyLimiter, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(limiter.wait(LONG_S)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_places_are_given_first_come_first_served() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=9)
    assert limiter.enter()
    assert not limiter.enter()
    first, second = await waiting(limiter, 2)
    limiter.leave()
    assert not limiter.enter(), "those who wait come first"
    await first
    assert not second.done()
    assert (limiter.running, limiter.waiting) == (1, 1)
    limiter.leave()
    await second
    limiter.leave()
    assert limiter.enter()


async def test_a_wait_for_a_free_place_is_none() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=1)
    async with asyncio.timeout(LONG_S):
        await limiter.wait(LONG_S)
    assert (limiter.running, limiter.waiting) == (1, 0)


async def test_the_queue_is_bounded() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=2)
    limiter.enter()
    tasks = await waiting(limiter, 2)
    with pytest.raises(MeshError) as caught:
        await limiter.wait(LONG_S)
    assert caught.value.reason_name == "QUEUE_FULL"
    assert caught.value.metadata == {"queue": "policy", "limit": "2"}
    assert caught.value.retry_after_s is not None
    # Room is made by one who leaves the queue.
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    (third,) = await waiting(limiter, 1)
    for task in (tasks[1], third):
        limiter.leave()
        await task


async def test_a_wait_ends_in_time() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=2)
    limiter.enter()
    with pytest.raises(MeshError) as caught:
        await limiter.wait(0.01)
    assert caught.value.reason_name == "MODEL_TIMEOUT"
    assert "no place was free within 0.01 s" in caught.value.message
    assert (limiter.running, limiter.waiting) == (1, 0)


async def test_a_place_given_to_one_who_goes_is_given_on() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=2)
    limiter.enter()
    first, second = await waiting(limiter, 2)
    limiter.leave()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    async with asyncio.timeout(LONG_S):
        await second
    assert limiter.running == 1


async def test_the_number_of_places_changes() -> None:
    limiter = ConcurrencyLimiter("policy", running=1, queue=9)
    limiter.enter()
    tasks = await waiting(limiter, 3)
    limiter.resize(3)
    await asyncio.gather(*tasks[:2])
    assert (limiter.running, limiter.waiting) == (3, 1)
    limiter.resize(1)
    limiter.leave()
    limiter.leave()
    await asyncio.sleep(0)
    assert not tasks[2].done(), "one place, and it is taken"
    limiter.leave()
    await tasks[2]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["enter", "leave", "cancel"]),
        st.tuples(st.just("resize"), st.integers(1, 5)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=60)
def test_no_place_is_lost_or_invented(steps: list[Any]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[Any]) -> None:
    limiter, held, tasks = ConcurrencyLimiter("policy", 2, queue=8), 0, []
    for step in steps:
        taken = limiter.running
        if step == "enter":
            if limiter.enter():
                held += 1
            elif limiter.waiting < 8:
                tasks += await waiting(limiter, 1)
        elif step == "leave" and held:
            held -= 1
            limiter.leave()
        elif step == "cancel" and tasks:
            tasks.pop().cancel()
        elif isinstance(step, tuple):
            limiter.resize(step[1])
        if limiter.running > taken:
            assert limiter.running <= limiter.limit
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        held += sum(task.done() and not task.cancelled() for task in tasks)
        tasks = [task for task in tasks if not task.done()]
        assert limiter.running == held
        assert not tasks or limiter.running >= limiter.limit
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_call_is_sent_again_before_others_where_there_are_fewer_places() -> None:
    limiter = ConcurrencyLimiter("policy", 2, 10)
    assert limiter.enter()
    assert limiter.enter()
    await limiter.again(60.0)  # as many as there are: nothing to wait for
    others = await waiting(limiter, 1)
    limiter.resize(1)
    again = asyncio.ensure_future(limiter.again(60.0))
    await asyncio.sleep(0)
    assert (limiter.running, limiter.waiting) == (1, 2)
    limiter.leave()
    await again
    assert limiter.running == 1
    assert not others[0].done()
    limiter.leave()
    await others[0]


async def test_a_call_that_waits_in_vain_to_be_sent_again_has_its_place() -> None:
    limiter = ConcurrencyLimiter("policy", 2, 10)
    assert limiter.enter()
    assert limiter.enter()
    limiter.resize(1)
    with pytest.raises(MeshError):
        await limiter.again(0.0)
    assert limiter.running == 2
