"""Endpoints that refuse calls, in simulated time, under the real pool, limiter and retries."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.endpoint.attempts import Attempts
from gymmesh_model.config import AdaptConfig
from gymmesh_model.routing import ConcurrencyLimiter, Pool, PoolEndpoint
from gymmesh_runtime.errors import MeshError


class _Selector(selectors.SelectSelector):
    """Waits for nothing: lets the loop's time pass instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += max(0.0, timeout or 0.0)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while every task waits."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)
        # Else sums of many steps end a hair before the timers that they are for.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._simulated.now


class Refused(Exception):
    """The endpoint takes no call now. after: its Retry-After."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__("refused")
        self.after = after


class World(Protocol):
    """An endpoint."""

    async def call(self) -> None:
        """Answers a call, or raises Refused."""


@dataclass
class Places:
    """So many calls at a time; one more is refused.

    stunned_s: for so long it then refuses every call.
    """

    places: int
    latency: float = 0.1
    stunned_s: float = 0.0
    jitter: float = 0.3
    busy: int = 0
    _until: float = float("-inf")

    async def call(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._until:
            raise Refused
        if self.busy >= self.places:
            self._until = now + self.stunned_s
            raise Refused
        self.busy += 1
        try:
            spread = random.uniform(1 - self.jitter, 1 + self.jitter)
            await asyncio.sleep(self.latency * spread)
        finally:
            self.busy -= 1


@dataclass
class Bucket:
    """So many calls a second, and a burst. says_after: whether a refusal has a Retry-After."""

    rate: float
    burst: float = 10.0
    latency: float = 0.1
    says_after: bool = False
    _tokens: float = field(default=-1.0)
    _at: float = 0.0

    async def call(self) -> None:
        now = asyncio.get_running_loop().time()
        tokens = self.burst if self._tokens < 0 else self._tokens
        self._tokens = min(self.burst, tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1.0:
            raise Refused((1.0 - self._tokens) / self.rate if self.says_after else None)
        self._tokens -= 1.0
        await asyncio.sleep(self.latency * random.uniform(0.7, 1.3))


@dataclass
class Chance:
    """Refuses a share of the calls, or each so-manyth, whatever else it has."""

    share: float = 0.0
    every: int = 0
    latency: float = 0.1
    _count: int = 0

    async def call(self) -> None:
        self._count += 1
        if random.random() < self.share or (self.every and self._count % self.every == 0):
            raise Refused
        await asyncio.sleep(self.latency * random.uniform(0.7, 1.3))


@dataclass
class Changing:
    """One endpoint that is another from a time on."""

    before: World
    after: World
    at: float

    async def call(self) -> None:
        now = asyncio.get_running_loop().time()
        await (self.before if now < self.at else self.after).call()


@dataclass
class Result:
    """answered: calls a second. failed, refused: shares of the calls. width: at the end."""

    answered: float
    failed: float
    refused: float
    widths: list[int]


@dataclass
class Clients:
    """Model services that call the same endpoints, each with `asked` calls at a time at most."""

    worlds: Sequence[World]
    asked: int = 64
    clients: int = 1
    fixed: int = 0
    max_retries: int = 2
    seconds: float = 60.0
    warm_up: float = 5.0
    seed: int = 1
    watch: Callable[[float, int], None] | None = None


def run(clients: Clients) -> Result:
    """What becomes of them, after `warm_up` seconds."""
    random.seed(clients.seed)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(_run(clients))


async def _run(clients: Clients) -> Result:
    loop = asyncio.get_running_loop()
    counts = {"answered": 0, "failed": 0, "refused": 0, "calls": 0}
    pools: list[Pool] = []
    tasks: list[asyncio.Task[None]] = []

    async def once(endpoint: PoolEndpoint) -> None:
        try:
            await clients.worlds[endpoint.index].call()
        except Refused as refusal:
            if loop.time() >= clients.warm_up:
                counts["refused"] += 1
            raise MeshError(
                errors.ERROR_REASON_MODEL_RATE_LIMITED, "refused", retry_after_s=refusal.after
            ) from None

    async def ask(limiter: ConcurrencyLimiter, attempts: Attempts) -> None:
        while True:
            if not limiter.enter():
                await limiter.wait(1e6)
            ended = "answered"
            try:
                await attempts.run(once, 1e6)
            except MeshError:
                ended = "failed"
            finally:
                limiter.leave()
            if loop.time() >= clients.warm_up:
                counts[ended] += 1

    for number in range(clients.clients):
        width = clients.fixed or clients.asked
        limiter = ConcurrencyLimiter(f"sim-{number}", width, 100_000)
        adapt = AdaptConfig(min_concurrency=width if clients.fixed else 1)
        bases = [f"http://e{index}/v1" for index in range(len(clients.worlds))]
        pool = Pool(f"sim-{number}", bases, concurrency=width, adapt=adapt, clock=loop.time)
        pool.govern(limiter)
        pools.append(pool)
        attempts = Attempts(pool, clients.max_retries)
        attempts._rng = random.Random(clients.seed + number)
        tasks += [asyncio.ensure_future(ask(limiter, attempts)) for _ in range(2 * clients.asked)]
    while loop.time() < clients.seconds:
        await asyncio.sleep(0.25)
        if clients.watch is not None:
            clients.watch(loop.time(), sum(int(one.width.width) for one in pools[0].endpoints))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    span = clients.seconds - clients.warm_up
    done = max(1, counts["answered"] + counts["failed"])
    return Result(
        counts["answered"] / span,
        counts["failed"] / done,
        counts["refused"] / (done + counts["refused"]),
        [sum(int(one.width.width) for one in pool.endpoints) for pool in pools],
    )
