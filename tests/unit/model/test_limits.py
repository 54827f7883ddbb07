from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.endpoint.attempts import Attempts
from gymmesh_model.errors import unreachable
from gymmesh_model.routing import Breaker, Pool, PoolEndpoint, RetryBudget
from gymmesh_runtime.errors import MeshError


def test_the_circuit_opens_probes_and_closes() -> None:
    breaker = Breaker(threshold=3, cooldown_s=10.0)
    for now in (0.0, 1.0):
        breaker.failed(now)
    assert breaker.admit(1.5) is None
    assert breaker.wait(1.5) == 0.0
    breaker.failed(2.0)
    assert breaker.is_open
    assert [breaker.wait(now) for now in (5.0, 12.0, 99.0)] == [7.0, 0.0, 0.0]
    assert breaker.admit(5.0) == 7.0
    # One probe in each cooldown, whatever becomes of it.
    assert breaker.admit(12.0) is None
    assert breaker.admit(12.5) == 9.5
    breaker.failed(13.0)
    assert breaker.admit(21.0) == 1.0
    assert breaker.admit(22.0) is None
    breaker.answered()
    assert not breaker.is_open
    assert breaker.admit(22.0) is None


def test_pauses_between_probes_may_grow() -> None:
    breaker = Breaker(threshold=1, cooldown_s=1.0, growth=2.0, longest_s=5.0)
    breaker.failed(0.0)
    now, pauses = 1.0, []
    for _ in range(5):
        assert breaker.admit(now) is None
        pauses.append(breaker.wait(now))
        breaker.failed(now)
        now += breaker.wait(now)
    assert pauses == [2.0, 4.0, 5.0, 5.0, 5.0]
    breaker.answered()
    breaker.failed(now)
    assert breaker.wait(now) == 1.0


def test_failures_count_only_in_a_row() -> None:
    breaker = Breaker(threshold=2)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.answered()
    assert not breaker.is_open


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60))
def test_an_open_circuit_lets_one_call_through_per_cooldown(
    steps: list[tuple[float, bool]],
) -> None:
    breaker = Breaker(threshold=1, cooldown_s=3.0)
    breaker.failed(0.0)
    now, probes = 0.0, [0.0]
    for pause, fails in steps:
        now += pause
        if breaker.admit(now) is None:
            probes.append(now)
            if fails:
                breaker.failed(now)
    assert all(later - earlier >= 3.0 - 1e-9 for earlier, later in itertools.pairwise(probes))


@given(st.lists(st.booleans(), max_size=300))
def test_retries_are_a_share_of_the_calls(steps: list[bool]) -> None:
    budget = RetryBudget(share=0.25, capacity=5.0)
    calls = retries = 0
    for retry in steps:
        if retry:
            retries += budget.take()
        else:
            budget.called()
            calls += 1
        assert retries <= 5 + 0.25 * calls


class Endpoint:
    """Fails, or answers, and counts."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: MeshError | None = unreachable("policy", "connection refused")

    async def once(self, at: PoolEndpoint) -> str:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "ok"


async def failing(attempts: Attempts, endpoint: Endpoint) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await attempts.run(endpoint.once, 10.0)
    return caught.value


async def test_an_open_circuit_fails_at_once_and_closes_again() -> None:
    now = 0.0
    endpoint = Endpoint()
    pool = Pool("policy", clock=lambda: now, breaker=lambda: Breaker(2, 5.0))
    attempts = Attempts(pool, 0)
    for _ in range(2):
        await failing(attempts, endpoint)
    error = await failing(attempts, endpoint)
    assert (error.reason_name, error.retry_after_s) == ("MODEL_UNREACHABLE", 5.0)
    assert "failed in a row" in error.metadata["cause"]
    assert endpoint.calls == 2
    now, endpoint.error = 5.0, None
    assert await attempts.run(endpoint.once, 10.0) == "ok"
    assert await attempts.run(endpoint.once, 10.0) == "ok"
    assert endpoint.calls == 4


async def test_an_endpoint_that_refuses_is_not_down() -> None:
    endpoint = Endpoint()
    endpoint.error = MeshError(errors.ERROR_REASON_MODEL_REQUEST_REFUSED, "no")
    attempts = Attempts(Pool("policy", breaker=lambda: Breaker(1)), 0)
    for _ in range(3):
        assert (await failing(attempts, endpoint)).reason_name == "MODEL_REQUEST_REFUSED"
    assert endpoint.calls == 3


async def test_a_spent_budget_ends_retries() -> None:
    endpoint = Endpoint()
    endpoint.error = MeshError(errors.ERROR_REASON_MODEL_RATE_LIMITED, "slower", retry_after_s=0.0)
    attempts = Attempts(Pool("policy"), 1, budget=RetryBudget(share=0.0, capacity=1.0), base_s=0.0)
    async with asyncio.timeout(60):
        await failing(attempts, endpoint)
        assert endpoint.calls == 2
        await failing(attempts, endpoint)
    assert endpoint.calls == 3
