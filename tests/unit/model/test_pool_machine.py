"""Any order of calls, answers, failures and time leaves a pool in a state that makes sense."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.config import AdaptConfig
from gymmesh_model.errors import timed_out, unreachable
from gymmesh_model.routing import ConcurrencyLimiter, LoadReport, Pool, PoolEndpoint
from gymmesh_runtime.errors import MeshError

MARGIN = 3
FAILURES = [
    unreachable("policy", "gone"),
    timed_out("policy", 60.0),
    MeshError(errors.ERROR_REASON_MODEL_RATE_LIMITED, "slower"),
    MeshError(errors.ERROR_REASON_MODEL_SERVER_ERROR, "x", metadata={"http_status": "503"}),
    MeshError(errors.ERROR_REASON_MODEL_REQUEST_REFUSED, "no"),
]
keys = st.sampled_from(["", "r1", "r2", "r3", "r4"])


class Machine(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 4), cap=st.integers(1, 40), floor=st.integers(1, 40))
    def start(self, size: int, cap: int, floor: int) -> None:
        self.now = 0.0
        self.calls: list[tuple[PoolEndpoint, float, str]] = []
        self.floor = min(floor, cap)
        self.cap = cap
        self.limiter = ConcurrencyLimiter("policy", cap, 10)
        self.pool = Pool(
            "policy",
            [f"http://h{place}/v1" for place in range(size)],
            margin=MARGIN,
            concurrency=cap,
            adapt=AdaptConfig(min_concurrency=self.floor),
            clock=lambda: self.now,
        )
        self.pool.govern(self.limiter)

    @rule(seconds=st.floats(0.0, 30.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=keys, data=st.data())
    def a_call_begins(self, key: str, data: Any) -> None:
        every = self.pool.endpoints
        tried = data.draw(st.sets(st.integers(0, len(every) - 1)))
        usable = [one for one in every if one.index not in tried and not one.breaker.wait(self.now)]
        loads = {one.index: one.load for one in every}
        more = self.pool.has_more(tried)
        chosen = self.pool.pick(key, tried)
        assert (chosen is None) == (not usable)
        assert more == (bool(usable) and len(tried) < len(every))
        if chosen is None:
            if not tried:
                wait = self.pool.left_alone().retry_after_s
                assert wait is not None
                assert 0 < wait <= 15.0
            return
        assert chosen in usable
        least = min(loads[one.index] for one in usable)
        assert loads[chosen.index] <= least + (MARGIN if key else 0)
        chosen.in_flight += 1
        self.calls.append((chosen, self.now, key))

    @rule(data=st.data())
    def a_call_is_answered(self, data: Any) -> None:
        if self.calls:
            endpoint, started, key = self._ended(data)
            self.pool.answered(endpoint, started, key)
            assert not endpoint.breaker.is_open
            if key:
                assert self.pool.home(key) is endpoint

    @rule(data=st.data(), error=st.sampled_from(FAILURES))
    def a_call_fails(self, data: Any, error: MeshError) -> None:
        if self.calls:
            endpoint, started, _ = self._ended(data)
            self.pool.failed(endpoint, started, error)

    @rule(
        data=st.data(),
        report=st.none()
        | st.builds(
            LoadReport,
            running=st.integers(0, 50),
            waiting=st.integers(0, 5),
            kv_usage=st.floats(0, 1),
            queue_sum=st.floats(0, 99),
            queue_count=st.integers(0, 9),
        ),
    )
    def an_endpoint_reports(self, data: Any, report: LoadReport | None) -> None:
        endpoint = data.draw(st.sampled_from(self.pool.endpoints))
        self.pool.reported(endpoint, report, self.now, endpoint.in_flight)

    @invariant()
    def the_limit_is_within_its_bounds(self) -> None:
        if hasattr(self, "pool"):
            assert max(1, self.floor) <= self.limiter.limit <= self.cap
            whole = sum(one.width.width for one in self.pool.endpoints)
            assert self.limiter.limit == max(1, int(whole + 1e-6))
            assert all(one.load >= one.in_flight >= 0 for one in self.pool.endpoints)

    def _ended(self, data: Any) -> tuple[PoolEndpoint, float, str]:
        call = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        call[0].in_flight -= 1
        return call


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40)
