from __future__ import annotations

import pytest

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model import metrics
from gymmesh_model.config import AdaptConfig, ModelConfig
from gymmesh_model.errors import timed_out, unreachable
from gymmesh_model.routing import ConcurrencyLimiter, LoadReport, Pool
from gymmesh_runtime.errors import MeshError

BASES = ("http://a:1/v1", "http://b:1/v1", "http://c:1/v1")
KEYS = [f"r{number}" for number in range(60)]
BUSY = MeshError(errors.ERROR_REASON_MODEL_RATE_LIMITED, "slower")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def down(pool: Pool, place: int) -> None:
    """Opens an endpoint's circuit."""
    while not pool.endpoints[place].breaker.is_open:
        pool.failed(pool.endpoints[place], 0.0, unreachable("policy", "gone"))


def picked(pool: Pool, keys: list[str]) -> list[int | None]:
    """Where a call of each rollout would go."""
    chosen = [pool.pick(key) for key in keys]
    return [None if one is None else one.index for one in chosen]


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("http://a:1/v1", "/chat/completions", "http://a:1/v1/chat/completions"),
        ("http://a:1/v1", "/../metrics", "http://a:1/metrics"),
        ("http://a:1/x/v1", "/../metrics", "http://a:1/x/metrics"),
        ("http://a:1", "/../metrics", "http://a:1/metrics"),
        ("http://a:1", "/responses", "http://a:1/responses"),
        ("http://a:1/v1", "http://b:2/v1/x", "http://b:2/v1/x"),
        ("", "http://b:2/v1/x", "http://b:2/v1/x"),
    ],
)
def test_the_url_of_a_path(base: str, path: str, url: str) -> None:
    assert Pool("policy", [base]).endpoints[0].at(path) == url


def test_one_endpoint_gets_every_call_once() -> None:
    clock = Clock()
    pool = Pool("policy", clock=clock)
    assert pool.pick("r1") is pool.pick("") is pool.endpoints[0]
    assert pool.pick("r1", {0}) is None
    assert not pool.has_more({0})
    down(pool, 0)
    assert pool.pick("r1") is None
    error = pool.left_alone()
    assert error.retry_after_s == 1.0
    assert error.message.endswith("only single calls as probes")
    clock.now = 1.0
    assert pool.pick("r1") is pool.endpoints[0]
    assert pool.pick("r1") is None, "one probe in a cooldown"


def test_one_that_is_down_gets_probes_only() -> None:
    clock = Clock()
    pool = Pool("policy", BASES, clock=clock)
    mine = [key for key in KEYS if pool.home(key).index == 1]
    down(pool, 1)
    assert set(picked(pool, KEYS)) == {0, 2}
    assert pool.has_more({0})
    assert not pool.has_more({0, 2})
    clock.now = 1.0
    assert picked(pool, mine).count(1) == 1
    pool.answered(pool.endpoints[1], 1.0, mine[0])
    assert set(picked(pool, mine)) == {1}


def test_one_that_hangs_is_down() -> None:
    clock = Clock()
    pool = Pool("policy", BASES, clock=clock)
    endpoint = pool.endpoints[0]
    late = timed_out("policy", 60.0)
    clock.now = 60.0
    for _ in range(9):
        # A caller in a hurry, and calls that were late while others were answered.
        pool.failed(endpoint, 50.1, late)
        pool.answered(endpoint, 30.0, "")
        pool.failed(endpoint, 0.0, late)
    assert not endpoint.breaker.is_open
    clock.now = 120.0
    for _ in range(5):
        assert not endpoint.breaker.is_open
        pool.failed(endpoint, 61.0, late)
    assert endpoint.breaker.is_open


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    pool = Pool("policy", ["http://me:secret@a:1/v1", BASES[1]], clock=clock)
    endpoint, gone = pool.endpoints[0], unreachable("policy", "gone")
    for _ in range(30):
        pool.failed(endpoint, 0.0, gone)
    first = f"{gone.message} (http://a:1/v1)"
    assert logged(caplog) == [first]
    clock.now = 12.5
    for _ in range(3):
        pool.answered(endpoint, 12.0, "")
    again = "the endpoint of model 'policy' at http://a:1/v1 answers again after"
    assert logged(caplog) == [f"{again} 12.5 s"]
    # One that comes and goes fills no log, and one that stays away is not overlooked.
    for now in range(13, 60):
        clock.now = float(now)
        pool.failed(endpoint, 0.0, gone)
        pool.answered(endpoint, clock.now, "")
    assert logged(caplog) == []
    for now in range(60, 70):
        clock.now = float(now)
        pool.failed(endpoint, 0.0, gone)
    pool.answered(endpoint, clock.now, "")
    assert logged(caplog) == [f"{first} (outage 2)", f"{again} 9.0 s"]


def test_an_error_now_and_then_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool("policy", BASES)
    endpoint = pool.endpoints[0]
    failed = MeshError(errors.ERROR_REASON_MODEL_SERVER_ERROR, "HTTP 500", metadata={"url": "u"})
    for _ in range(5):
        pool.failed(endpoint, 0.0, failed)
        pool.failed(endpoint, 0.0, failed)
        pool.answered(endpoint, 0.0, "")
    assert logged(caplog) == []
    for _ in range(5):
        pool.failed(endpoint, 0.0, failed)
    assert logged(caplog) == ["HTTP 500"]


def test_several_are_given_up_sooner_than_one() -> None:
    assert Pool("policy").endpoints[0].breaker.threshold == 20
    assert Pool("policy", BASES).endpoints[0].breaker.threshold == 5


def test_reroutes_are_counted_by_cause() -> None:
    pool = Pool("routed", BASES, margin=3)
    key = next(key for key in KEYS if pool.home(key).index == 1)
    pool.endpoints[1].in_flight = 4
    assert pool.pick(key) is not pool.endpoints[1]
    pool.endpoints[1].in_flight = 3
    assert pool.pick(key) is pool.endpoints[1]
    down(pool, 1)
    pool.pick(key)
    counts = {cause: metrics.MODEL_REROUTES.labels("routed", cause) for cause in ("busy", "down")}
    assert {cause: count.value for cause, count in counts.items()} == {"busy": 1, "down": 1}


def refuse(pool: Pool, place: int, in_hand: int, times: int, error: MeshError = BUSY) -> None:
    endpoint = pool.endpoints[place]
    endpoint.in_flight = in_hand
    for _ in range(times):
        pool.failed(endpoint, pool.clock(), error)


def test_each_has_its_part_of_the_width() -> None:
    clock = Clock()
    limiter = ConcurrencyLimiter("policy", 30, 10)
    pool = Pool("policy", BASES, concurrency=30, adapt=AdaptConfig(backoff=0.5), clock=clock)
    pool.govern(limiter)
    first, second, _ = pool.endpoints
    clock.now = 1.0
    refuse(pool, 0, 6, 8)
    assert limiter.limit == 30, "too few to tell"
    refuse(pool, 0, 6, 4)
    assert limiter.limit == 26, "what it has in hand it did take"
    overloaded = MeshError(
        errors.ERROR_REASON_MODEL_SERVER_ERROR, "x", metadata={"http_status": "503"}
    )
    clock.now = 2.0
    refuse(pool, 0, 4, 12, overloaded)
    assert limiter.limit == 24
    pool.failed(first, 9.0, unreachable("policy", "gone"))
    assert limiter.limit == 24
    full = LoadReport(waiting=5, kv_usage=0.99)
    pool.reported(second, full, asked=1.0, in_flight=10)
    assert limiter.limit == 19, "metrics leave a part of it"
    assert metrics.MODEL_CONCURRENCY_LIMIT.labels("policy").value == 19
    assert metrics.MODEL_ENDPOINT_KV_CACHE.labels("policy", "1").value == 0.99


def test_one_that_has_as_many_as_it_takes_gets_none() -> None:
    clock = Clock()
    pool = Pool("policy", BASES, margin=100, concurrency=30, clock=clock)
    mine = [key for key in KEYS if pool.home(key).index == 1]
    clock.now = 1.0
    refuse(pool, 1, 6, 12)
    assert 1 not in picked(pool, mine)
    pool.endpoints[1].in_flight = 5
    assert set(picked(pool, mine)) == {1}
    for endpoint in pool.endpoints:
        endpoint.in_flight = 50
    assert None not in picked(pool, mine), "the others have their whole part"


def test_the_floor_is_kept() -> None:
    limiter = ConcurrencyLimiter("policy", 30, 10)
    pool = Pool("policy", BASES, concurrency=30, adapt=AdaptConfig(min_concurrency=6))
    pool.govern(limiter)
    for _ in range(100):
        for place in range(len(BASES)):
            refuse(pool, place, 0, 20)
    assert limiter.limit == 6


def test_one_place_is_always_left() -> None:
    limiter = ConcurrencyLimiter("policy", 1, 10)
    pool = Pool("policy", BASES, concurrency=1)
    pool.govern(limiter)
    assert int(sum(one.width.width for one in pool.endpoints) + 1e-6) == 1
    for place in range(len(BASES)):
        refuse(pool, place, 0, 50)
    assert limiter.limit == 1


def test_others_calls_count_as_load() -> None:
    pool = Pool("policy", BASES)
    endpoint = pool.endpoints[0]
    endpoint.in_flight = 5
    pool.reported(endpoint, LoadReport(running=7, waiting=4), 0.0, in_flight=6)
    assert endpoint.load == 5 + 5
    pool.reported(endpoint, LoadReport(running=1), 0.0, in_flight=6)
    assert endpoint.load == 5
    pool.reported(endpoint, LoadReport(running=20, kv_usage=0.99), 0.0, in_flight=6)
    assert endpoint.width.held
    pool.reported(endpoint, None, 0.0, in_flight=6)
    assert (endpoint.load, endpoint.width.held) == (5, False)


def test_a_configured_pool() -> None:
    config = ModelConfig(backend="chat", urls=list(BASES), route_margin=3, max_concurrency=9)
    pool = Pool.of("policy", config)
    assert [one.base for one in pool.endpoints] == list(BASES)
    assert [one.width.cap for one in pool.endpoints] == [3, 3, 3]
    assert [one.base for one in Pool.of("policy", ModelConfig()).endpoints] == [""]


def test_a_password_in_a_url_does_not_decide_where_rollouts_go() -> None:
    with_password = [base.replace("//", "//me:secret@") for base in BASES]
    pools = Pool("policy", BASES), Pool("policy", with_password)
    assert [pools[0].home(key).index for key in KEYS] == [pools[1].home(key).index for key in KEYS]
