"""Several endpoints of one model: real servers that die and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from aiohttp import web

from gymmesh_model import ModelConfig, ModelService, metrics
from gymmesh_model.config import AdaptConfig
from gymmesh_model.routing.breaker import RetryBudget
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError, to_status
from tests.integration.test_model_service import BOUND_S, KEY, ask, request, serving
from tests.integration.test_model_service_faults import streamed
from tests.scale.routing_bench.simulation import Simulation, World
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint, Seen
from tests.unit.runtime.probe import until

Api = Literal["chat", "responses", "vllm"]
How = Literal["whole", "stream"]
apis = pytest.mark.parametrize("api", ["chat", "responses", "vllm"])
ways = pytest.mark.parametrize("how", ["whole", "stream"])


@pytest.fixture
async def servers() -> AsyncIterator[list[FakeEndpoint]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeEndpoint()) for _ in range(3)]


def configured(api: Api, servers: Sequence[FakeEndpoint], **more: Any) -> ModelConfig:
    given = {"timeout_s": 60.0, "max_retries": 2, "api_key": KEY, "model": "m-1", **more}
    if api == "vllm":
        # Nothing but the calls: what else it asks its servers is counted elsewhere.
        given["options"] = {"exact": False, "weights_poll_s": 0.0}
    return ModelConfig(backend=api, urls=[server.url for server in servers], **given)


def pool_of(service: ModelService) -> Any:
    return service._runner.backend.features.pool  # type: ignore[union-attr]  # there is no public way to it


async def answered(service: ModelService, how: How, rollout: str) -> str:
    """The answer's text, or the failure's reason."""
    asked = request(rollout_id=rollout)
    try:
        if how == "whole":
            return text_of((await ask(service, asked)).response.output[0])
        frames: list[Any] = []
        await streamed(service, frames, asked)
        return text_of(frames[-1].completed.response.output[0])
    except MeshError as error:
        return _reason(error)


def _reason(error: MeshError) -> str:
    assert KEY not in f"{error} {error.metadata} {to_status(error)}"
    return error.reason_name


async def stopped(server: FakeEndpoint) -> int:
    """Stops a server and returns the port that it is to come back at."""
    port = int(server.url.split(":")[2].split("/")[0])
    await server.stop()
    return port


@apis
@ways
async def test_one_replica_dead(api: Api, how: How, servers: list[FakeEndpoint]) -> None:
    async with serving(configured(api, servers)) as service:
        await servers[1].stop()
        said = [await answered(service, how, f"r{n}") for n in range(60)]
        assert said == ["ok"] * 60
        dead = pool_of(service).endpoints[1]
        assert dead.breaker.is_open
        assert metrics.MODEL_ENDPOINT_DOWN.labels("policy", "1").value == 1
    counts = [len(server.requests) for server in servers]
    assert counts[1] == 0
    # Which is whose depends on the ports, hence the wide bounds here and below.
    assert min(counts[0], counts[2]) >= 10, "its rollouts are spread over the others"


@apis
@ways
async def test_all_dead(api: Api, how: How, servers: list[FakeEndpoint]) -> None:
    async with serving(configured(api, servers, max_retries=2)) as service:
        for server in servers:
            await server.stop()
        async with asyncio.timeout(BOUND_S):
            said = await asyncio.gather(*(answered(service, how, f"r{n}") for n in range(60)))
        assert set(said) == {"MODEL_UNREACHABLE"}
        assert all(one.in_flight == 0 for one in pool_of(service).endpoints)
        assert service._limiter.running == 0


@apis
@ways
async def test_dead_then_back(api: Api, how: How, servers: list[FakeEndpoint]) -> None:
    async with serving(configured(api, servers)) as service:
        pool = pool_of(service)
        for endpoint in pool.endpoints:
            endpoint.breaker.cooldown_s = 0.05
        mine = [f"r{n}" for n in range(40) if pool.home(f"r{n}").index == 1]
        port = await stopped(servers[1])
        assert {await answered(service, how, one) for one in mine} == {"ok"}
        assert len(servers[1].requests) == 0
        moved = [pool.home(one).index for one in mine]
        assert 1 not in moved
        await servers[1].start(port)
        await asyncio.sleep(0.1)
        # What has moved stays where its prefix is now; new rollouts find the one that is back.
        assert {await answered(service, how, one) for one in mine} == {"ok"}
        assert [pool.home(one).index for one in mine] == moved
        fresh = [f"s{n}" for n in range(40)]
        assert {await answered(service, how, one) for one in fresh} == {"ok"}
        assert len(servers[1].requests) > 0
        assert not pool.endpoints[1].breaker.is_open


@dataclass(frozen=True)
class Row:
    """What one replica does while the others answer, and whether its calls go elsewhere."""

    name: str
    fault: Any
    said: str = "ok"
    more: dict[str, Any] = field(default_factory=dict)


TABLE = [
    Row("reset before the headers", fake.reset()),
    Row("reset inside the answer", fake.reset(after_headers=True)),
    Row("500", fake.status(500)),
    Row("503, come back late", fake.status(503, retry_after="90")),
    Row("429, come back late", fake.status(429, retry_after="90")),
    # Where the same would happen again, or the time is up, the failure stands.
    Row("400", fake.status(400), "MODEL_REQUEST_REFUSED"),
    Row("context length", fake.context_exceeded(), "MODEL_CONTEXT_EXCEEDED"),
    Row("no JSON", fake.broken_json(), "MODEL_ANSWER_INVALID"),
    Row("hang", fake.hang(), "MODEL_TIMEOUT", {"timeout_s": 3.0}),
    Row("500, no retries", fake.status(500), "MODEL_SERVER_ERROR", {"max_retries": 0}),
]


@apis
@ways
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_a_replica_that_fails(
    api: Api, how: How, row: Row, servers: list[FakeEndpoint]
) -> None:
    async with serving(configured(api, servers, **row.more)) as service:
        pool = pool_of(service)
        rollout = next(f"r{n}" for n in range(99) if pool.home(f"r{n}").index == 1)
        servers[1].default = row.fault
        assert await answered(service, how, rollout) == row.said
        assert len(servers[1].requests) == 1
        assert len(servers[0].requests) + len(servers[2].requests) == (row.said == "ok")
        async with asyncio.timeout(BOUND_S):
            await servers[1].idle.wait()
        assert all(one.in_flight == 0 for one in pool.endpoints)


async def test_what_every_replica_refuses_waits_and_is_tried_again(
    servers: list[FakeEndpoint],
) -> None:
    for server in servers:
        server.script = [fake.status(429, retry_after="0")]
    config = configured("chat", servers, max_retries=3)
    async with serving(config) as service:
        assert await answered(service, "whole", "r1") == "ok"
    assert sum(len(server.requests) for server in servers) == 4


async def test_a_spent_budget_keeps_calls_where_they_are(servers: list[FakeEndpoint]) -> None:
    async with serving(configured("chat", servers)) as service:
        service._runner.backend._http._attempts._budget._tokens = 0.0  # type: ignore[union-attr]
        await servers[1].stop()
        pool = pool_of(service)
        rollout = next(f"r{n}" for n in range(99) if pool.home(f"r{n}").index == 1)
        assert await answered(service, "whole", rollout) == "MODEL_UNREACHABLE"


async def test_overload_takes_the_limit_down_and_success_takes_it_up(
    servers: list[FakeEndpoint],
) -> None:
    config = configured("chat", servers, max_concurrency=30, max_retries=0)
    async with serving(config) as service:
        for server in servers:
            server.default = fake.slow(0.02, fake.text("ok"))
        await asyncio.gather(*(answered(service, "whole", f"q{n}") for n in range(90)))
        for server in servers:
            server.default = fake.status(429)
        said = await asyncio.gather(*(answered(service, "whole", f"r{n}") for n in range(150)))
        assert set(said) == {"MODEL_RATE_LIMITED"}
        assert service._limiter.limit <= 15
        limit = metrics.MODEL_CONCURRENCY_LIMIT.labels("policy").value
        assert limit == service._limiter.limit
        for server in servers:
            server.default = fake.slow(0.02, fake.text("ok"))
        said = await asyncio.gather(*(answered(service, "whole", f"s{n}") for n in range(300)))
        assert set(said) == {"ok"}
        assert 24 <= service._limiter.limit <= 30
        assert max(server.peak for server in servers) <= 30


@pytest.mark.parametrize("status", [429, 503])
async def test_after_a_short_outage_the_limit_is_back_within_a_few_calls(status: int) -> None:
    """Counted in calls, since a second on a busy machine is no measure."""
    width = 48
    async with FakeEndpoint() as server:
        config = configured("chat", [server], max_concurrency=width, max_retries=0)
        async with serving(config) as service:
            server.default = fake.slow(0.01, fake.text("ok"))
            await asyncio.gather(*(answered(service, "whole", "") for _ in range(3 * width)))
            server.default = fake.status(status)
            refused = await asyncio.gather(
                *(answered(service, "whole", "") for _ in range(5 * width))
            )
            assert "ok" not in refused
            assert service._limiter.limit < width
            server.default = fake.slow(0.01, fake.text("ok"))
            async with asyncio.timeout(BOUND_S):
                # 503 has opened the circuit, too, which lets one call in a second through.
                while await answered(service, "whole", "") != "ok":  # noqa: ASYNC110  # no event
                    await asyncio.sleep(0.05)
            before, asked = len(server.requests), 0
            # Six round trips at full width are mostly enough. Where the machine is so busy that
            # answers come late, less of the width is used, and it takes more.
            while service._limiter.limit < 0.9 * width:
                assert asked < 60 * width, service._limiter.limit
                said = await asyncio.gather(
                    *(answered(service, "whole", "") for _ in range(6 * width))
                )
                assert set(said) == {"ok"}
                asked += 6 * width
            assert len(server.requests) - before == asked, "nothing was refused again"
            # Each answer waits until so many calls are there: with less width this would not end.
            full = asyncio.Event()
            server.default = fake.gate(full, fake.text("ok"))
            async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as calls:
                for _ in range(width):
                    calls.create_task(answered(service, "whole", ""))
                while server.running < 0.9 * width:
                    await server.arrived.wait()
                    server.arrived.clear()
                full.set()


class Narrow(FakeEndpoint):
    """Refuses calls beyond so many at a time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.refused: list[bool] = []
        self.default = self._answer

    def _answer(self, seen: Seen) -> Any:
        self.refused.append(self.running > self.width)
        return fake.status(429) if self.refused[-1] else fake.slow(0.02, fake.text("ok"))


async def test_the_limit_finds_what_an_endpoint_can_take() -> None:
    narrow = Narrow(8)
    async with narrow:
        config = configured("chat", [narrow], max_concurrency=64, max_retries=8)
        async with serving(config) as service:
            # The limit is what is looked at, not the budget, which a slow start may spend.
            backend: Any = service._opened().backend
            backend._http._attempts._budget = RetryBudget(capacity=1e9)
            said = await asyncio.gather(*(answered(service, "whole", "") for _ in range(600)))
            limit = service._limiter.limit
    assert set(said) == {"ok"}
    early, late = narrow.refused[:200], narrow.refused[-300:]
    print(f"refused: {sum(early)} of the first 200, {sum(late)} of the last 300; limit {limit}")
    assert 4 <= limit <= 20
    assert sum(late) / 300 < sum(early) / 200 / 2


PAGE = """\
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} {waiting}
vllm:kv_cache_usage_perc{{engine="0"}} {kv}
"""


class Metered:
    """A server with nothing but a page of metrics, and a model that echoes."""

    def __init__(self) -> None:
        self.page = PAGE.format(running=0, waiting=0, kv=0.1)
        self.status = 200
        self.hangs = False
        self.asked = asyncio.Event()
        self.keys: list[str] = []

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def _metrics(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization", ""))
        self.asked.set()
        if self.hangs:
            await asyncio.Event().wait()
        return web.Response(text=self.page, status=self.status)

    async def read_twice(self) -> None:
        """Waits until a report that was asked for after now has been taken in."""
        async with asyncio.timeout(BOUND_S):
            for _ in range(2):
                self.asked.clear()
                await self.asked.wait()


async def test_what_endpoints_say_of_themselves_counts() -> None:
    busy, idle = Metered(), Metered()
    runners = [await one.start() for one in (busy, idle)]
    config = ModelConfig(
        backend="chat",
        urls=[url for _, url in runners],
        api_key=KEY,
        max_concurrency=20,
        adapt=AdaptConfig(metrics=True, poll_s=0.1),
    )
    try:
        async with serving(config) as service:
            pool = pool_of(service)
            busy.page = PAGE.format(running=30, waiting=5, kv=0.5)
            # A report that comes too late counts for none, and the next is another try.
            await until(lambda: pool.endpoints[0].load == 35)
            # Others' calls count, so rollouts of the busy one go to the idle one.
            assert {pool.pick(f"r{n}").index for n in range(20)} == {1}
            assert service._limiter.limit == 20
            # Requests that wait at a full cache are overload.
            busy.page = PAGE.format(running=30, waiting=5, kv=0.99)
            await until(lambda: service._limiter.limit < 20)
            assert pool.endpoints[1].width.width == 10
            # Metrics that are gone are no load.
            busy.status = 500
            await until(lambda: pool.endpoints[0].load == 0)
            # One that hangs is left in time, and closing does not wait for it.
            busy.hangs = True
            await busy.read_twice()
        assert set(busy.keys) == {f"Bearer {KEY}"}
    finally:
        for runner, _ in runners:
            await runner.cleanup()


# --- a run against live servers, and the same run simulated

AT_A_TIME, CALL_S, DIES_AT, BACK_AT = 24, 0.08, 200, 320
LENGTHS = tuple(4 + number * 5 % 9 for number in range(90))


class Replica(FakeEndpoint):
    """Remembers the rollouts whose prefix it has read, and forgets them when it stops."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, int] = {}
        self.hits = self.repeats = self.calls = self.after = 0
        self.default = self._answer

    def _answer(self, seen: Seen) -> Any:
        said = [one["content"] for one in seen.body["messages"]]
        rollout, turns = said[0], len(said)
        self.calls += 1
        self.after += 1
        if turns > 1:
            self.repeats += 1
            self.hits += self.held.get(rollout, 0) == turns - 1
        self.held[rollout] = turns
        return fake.slow(CALL_S, fake.text("ok"))

    async def stop(self) -> None:
        await super().stop()
        self.held.clear()


async def test_a_live_run_agrees_with_the_simulation() -> None:
    """Three servers, one of them killed and brought back, under 24 rollouts at a time.

    Stated bounds: no call fails, the share of calls that find their prefix is within four points
    of the simulated one, and so within ten is each other server's share of the calls that the
    killed one does not answer. How many that one answers depends on the clock: it is tried again
    after seconds, in which a busy machine makes fewer calls.
    """
    async with AsyncExitStack() as stack:
        servers = [Replica() for _ in range(3)]
        for server in servers:
            await stack.enter_async_context(server)
        simulated = Simulation(_world_of(servers)).run()
        service = await stack.enter_async_context(serving(configured("chat", servers)))
        async with asyncio.timeout(2 * BOUND_S):
            said = await _collect(service, servers[1])
    assert said == ["ok"] * sum(LENGTHS)
    assert simulated.failures == 0
    live_hits = sum(s.hits for s in servers) / sum(s.repeats for s in servers)
    print(f"hits: live {live_hits:.3f}, simulated {simulated.hit_rate:.3f}")
    assert abs(live_hits - simulated.hit_rate) < 0.04
    live = [server.calls for server in servers]
    print(f"calls: live {live}, simulated {simulated.answered}")
    for place in (0, 2):
        share = live[place] / (live[0] + live[2])
        expected = simulated.answered[place] / (simulated.answered[0] + simulated.answered[2])
        assert abs(share - expected) < 0.1
    assert servers[1].after > 0, "the one that is back gets calls again"


def _world_of(servers: list[Replica]) -> World:
    return World(
        endpoints=len(servers),
        slots=AT_A_TIME,
        at_a_time=AT_A_TIME,
        tool_s=0.0,
        changes=((DIES_AT, 1, False), (BACK_AT, 1, True)),
        named=tuple(server.url for server in servers),
        lengths=LENGTHS,
        call_s=CALL_S,
    )


async def _collect(service: ModelService, mortal: Replica) -> list[str]:
    """All rollouts, so many at a time; `mortal` dies and comes back on the way."""
    numbers, said = iter(range(len(LENGTHS))), list[str]()
    dies, back = asyncio.Event(), asyncio.Event()

    async def worker() -> None:
        for number in numbers:
            for turn in range(LENGTHS[number]):
                texts = [f"rollout {number}", *(f"turn {past}" for past in range(turn))]
                messages = [{"role": "user", "content": text} for text in texts]
                asked = request({"input": messages}, rollout_id=f"r{number}")
                said.append(await _text(service, asked))
                if len(said) >= DIES_AT:
                    dies.set()
                if len(said) >= BACK_AT:
                    back.set()

    async def fate() -> None:
        await dies.wait()
        port = await stopped(mortal)
        await back.wait()
        await mortal.start(port)
        mortal.after = 0

    await asyncio.gather(fate(), *(worker() for _ in range(AT_A_TIME)))
    return said


async def _text(service: ModelService, asked: Any) -> str:
    try:
        return text_of((await ask(service, asked)).response.output[0])
    except MeshError as error:
        return error.reason_name
