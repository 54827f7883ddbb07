"""What an identity may take: counted, given back, and of no concern to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import LimitsConfig
from gymmesh_runtime.security.limits import IdentityLimiter
from tests.unit.runtime.probe import MODEL, Probe, stream, unary


def limiter(clock: Any = None, **limits: Any) -> IdentityLimiter:
    return IdentityLimiter(LimitsConfig(**limits), clock or (lambda: 0.0))


def refused(of: IdentityLimiter, identity: str = "ann", **kind: bool) -> MeshError:
    with pytest.raises(MeshError) as caught:
        of.enter(identity, **({"stream": False} | kind))
    assert caught.value.reason_name == "QUEUE_FULL"
    assert caught.value.retry_after_s
    return caught.value


def test_calls_in_flight() -> None:
    of = limiter(calls=2)
    of.enter("ann", stream=False)
    of.enter("ann", stream=True)
    assert refused(of).metadata == {"queue": "calls in flight", "limit": "2"}
    of.enter("bob", stream=False)
    of.leave("ann", stream=True)
    of.enter("ann", stream=False)


def test_streams() -> None:
    of = limiter(streams=1)
    with of.connected("ann"):
        refused(of, stream=True)
        of.enter("ann", stream=False)
    of.enter("ann", stream=True)


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 20))
def test_the_rate_is_kept_over_any_time(pauses: list[float], rate: int) -> None:
    now = 0.0
    of = limiter(lambda: now, calls_per_s=float(rate))
    let_in = 0
    for pause in pauses:
        now += pause
        for _ in range(3 * rate):
            try:
                of.enter("ann", stream=False)
            except MeshError:
                continue
            let_in += 1
    assert let_in <= rate + now * rate + 1e-6
    now += 1.001
    for _ in range(rate):
        of.enter("ann", stream=False)  # a second's worth has come by now
    error = refused(of)
    now += (error.retry_after_s or 0.0) + 1e-9
    of.enter("ann", stream=False)


async def test_each_call_gives_back_what_it_took() -> None:
    of = limiter(calls=1, streams=1)
    binding = Binding(MODEL, Probe())
    for method in binding.methods.values():
        method.wrap(of.limited)
    create, streamed = binding.methods["CreateResponse"], binding.methods["StreamResponse"]
    await create.call(unary("ok"), 30.0, identity="ann")
    with pytest.raises(MeshError):
        await create.call(unary("typed"), 30.0, identity="ann")
    running = asyncio.create_task(create.call(unary("hang"), 30.0, identity="ann"))
    await asyncio.sleep(0)
    with pytest.raises(MeshError, match="reached its limit"):
        await create.call(unary("ok"), 30.0, identity="ann")
    await create.call(unary("ok"), 30.0, identity="bob")
    running.cancel()
    await asyncio.wait((running,))
    frames: AsyncIterator[Any] = streamed.stream(stream("ok"), timeout=30.0, identity="ann")
    async with aclosing(frames) as left_early:  # type: ignore[type-var]  # it is a generator
        await anext(left_early)
        with pytest.raises(MeshError, match="reached its limit"):
            await create.call(unary("ok"), 30.0, identity="ann")
    await create.call(unary("ok"), 30.0, identity="ann")
