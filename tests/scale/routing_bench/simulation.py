"""Rollouts over several endpoints, simulated event by event; the pool is the real one.

An endpoint answers `slots` calls at a time and queues the rest. A call takes the time to read
the part of its prompt that the endpoint does not hold, and then the time to write its answer.
What an endpoint holds are the prefixes of the rollouts that it answered last, up to
`cache_tokens`. Rollouts differ as Zipf's law has it: a few are very long, most are short, and
so are prompts, tool results and answers. So many run at a time, each one call after the other
with a tool between them; when one ends, the next begins.

Same seed, same result, to the last digit.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gymmesh_model.errors import unreachable
from gymmesh_model.routing import Pool, PoolEndpoint, Router

MakeRouter = Callable[[Sequence[str]], Router]


@dataclass(frozen=True)
class World:
    """What is simulated. Times in seconds, sizes in tokens."""

    endpoints: int = 4
    slots: int = 24
    cache_tokens: int = 250_000
    rollouts: int = 800
    at_a_time: int = 96
    longest_rollout: int = 40
    exponent: float = 1.1
    read_s: float = 1 / 8000
    write_s: float = 1 / 40
    tool_s: float = 0.5
    seed: int = 7
    # Calls answered before an endpoint dies or is back: (count, endpoint, is up).
    changes: tuple[tuple[int, int, bool], ...] = ()
    # Of a world that is made up: the endpoints' names, and the calls of each rollout, which
    # then all take `call_s`.
    named: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    call_s: float = 0.0

    def names(self) -> list[str]:
        """The endpoints' base URLs."""
        places = range(self.endpoints)
        return list(self.named) or [f"http://replica-{place}:8000/v1" for place in places]


@dataclass(frozen=True)
class Call:
    """One call of a rollout. new: tokens of its prompt that no call before it had."""

    new: int
    written: int


@dataclass
class Result:
    """What came of it. Tokens are those that an earlier call of the rollout had in its prompt or
    its answer, so that the endpoint could have held them.
    """

    calls: int = 0
    repeats: int = 0
    hits: int = 0
    tokens: int = 0
    tokens_held: int = 0
    failures: int = 0
    retries: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    later: list[int] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Calls, of those that continue a rollout, that found its prefix."""
        return self.hits / max(self.repeats, 1)

    @property
    def token_rate(self) -> float:
        """Tokens that did not have to be read again."""
        return self.tokens_held / max(self.tokens, 1)

    @property
    def balance(self) -> float:
        """Seconds of work of the busiest endpoint over those of the average one."""
        return max(self.busy) * len(self.busy) / sum(self.busy)

    def wait(self, share: float) -> float:
        """The seconds that so many of the calls waited at most."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    @property
    def mean_wait(self) -> float:
        """Seconds that a call waited at its endpoint."""
        return sum(self.waits) / max(len(self.waits), 1)


def zipf(rng: random.Random, low: int, high: int, exponent: float) -> int:
    """A number of low … high whose probability falls with its distance to `low`."""
    weights = _weights(high - low + 1, exponent)
    return low + rng.choices(range(high - low + 1), cum_weights=weights)[0]


_known: dict[tuple[int, float], list[float]] = {}


def _weights(count: int, exponent: float) -> list[float]:
    if (count, exponent) not in _known:
        ranks = (1 / (rank + 1) ** exponent for rank in range(count))
        _known[count, exponent] = list(itertools.accumulate(ranks))
    return _known[count, exponent]


def plan(world: World) -> list[list[Call]]:
    """The calls of every rollout."""
    if world.lengths:
        return [[Call(1, 1)] * length for length in world.lengths]
    rng = random.Random(world.seed)
    steep = world.exponent
    return [
        [
            Call(
                200 * zipf(rng, 2, 20, steep) if number == 0 else 50 * zipf(rng, 1, 40, steep),
                10 * zipf(rng, 2, 60, steep),
            )
            for number in range(zipf(rng, 1, world.longest_rollout, steep / 2))
        ]
        for _ in range(world.rollouts)
    ]


class _Replica:
    """A simulated endpoint."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.running: set[_Try] = set()
        self.queue: deque[_Try] = deque()
        self.held: OrderedDict[str, int] = OrderedDict()
        self.held_tokens = 0
        self.busy_s = 0.0

    def keep(self, key: str, tokens: int) -> None:
        self.held_tokens += tokens - self.held.pop(key, 0)
        self.held[key] = tokens
        while self.held_tokens > self.world.cache_tokens:
            self.held_tokens -= self.held.popitem(last=False)[1]

    def die(self) -> list[_Try]:
        lost = [*self.running, *self.queue]
        self.up, self.held_tokens = False, 0
        self.running.clear()
        self.queue.clear()
        self.held.clear()
        return lost


@dataclass(eq=False)
class _Try:
    """A call on its way to an answer. asked: when it arrived where it is. rest: the calls after."""

    key: str
    call: Call
    prefix: int
    tried: set[int]
    endpoint: PoolEndpoint
    asked: float
    rest: deque[Call]


class Simulation:
    """One run of a world under one way to route. `result` afterwards says how it went."""

    def __init__(
        self, world: World, make_router: MakeRouter | None = None, margin: float = 8
    ) -> None:
        self.world = world
        self.now = 0.0
        self.result = Result()
        names = world.names()
        self.pool = Pool(
            "simulated",
            names,
            margin=margin,
            concurrency=world.at_a_time,
            clock=lambda: self.now,
        )
        if make_router is not None:
            self.pool._router = make_router(names)
        self.replicas = [_Replica(world) for _ in names]
        self.result.answered = [0] * len(names)
        self.result.later = [0] * len(names)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changes = deque(world.changes)
        self._rollouts = enumerate(plan(world))

    def run(self) -> Result:
        """Runs it to its end."""
        for _ in range(self.world.at_a_time):
            self._next_rollout()
        while self._events:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.result.seconds = self.now
        self.result.busy = [replica.busy_s for replica in self.replicas]
        return self.result

    def _at(self, delay: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), happen))

    def _next_rollout(self) -> None:
        number, calls = next(self._rollouts, (0, None))
        if calls is not None:
            self._begin(f"r{number}", deque(calls), 0)

    def _begin(self, key: str, calls: deque[Call], prefix: int) -> None:
        if not calls:
            self._next_rollout()
            return
        call = calls.popleft()
        self.result.calls += 1
        self._send(key, call, prefix, set(), calls)

    def _send(self, key: str, call: Call, prefix: int, tried: set[int], rest: deque[Call]) -> None:
        """As the retry loop does: elsewhere at once, so often and no more."""
        while True:
            endpoint = self.pool.pick(key, tried)
            if endpoint is None or len(tried) > 2:
                self.result.failures += 1
                self._next_rollout()
                return
            if self.replicas[endpoint.index].up:
                break
            self._failed(endpoint, tried)
        endpoint.in_flight += 1
        one = _Try(key, call, prefix, tried, endpoint, self.now, rest)
        replica = self.replicas[endpoint.index]
        replica.queue.append(one)
        self._serve(replica)

    def _failed(self, endpoint: PoolEndpoint, tried: set[int]) -> None:
        self.pool.failed(endpoint, self.now, unreachable("simulated", "it is down"))
        tried.add(endpoint.index)
        self.result.retries += 1

    def _serve(self, replica: _Replica) -> None:
        while replica.queue and len(replica.running) < self.world.slots:
            one = replica.queue.popleft()
            replica.running.add(one)
            held = min(replica.held.get(one.key, 0), one.prefix)
            self.result.waits.append(self.now - one.asked)
            if one.prefix:
                self.result.repeats += 1
                self.result.hits += held == one.prefix
                self.result.tokens += one.prefix
                self.result.tokens_held += held
            if self.world.call_s:
                self._answer_in(one, self.world.call_s)
                continue
            reads = one.prefix - held + one.call.new
            takes = reads * self.world.read_s + one.call.written * self.world.write_s
            self._answer_in(one, takes)

    def _answer_in(self, one: _Try, takes: float) -> None:
        self._at(takes, lambda: self._answered(one, takes))

    def _answered(self, one: _Try, took: float) -> None:
        replica = self.replicas[one.endpoint.index]
        if one not in replica.running:
            return
        replica.running.remove(one)
        replica.busy_s += took
        tokens = one.prefix + one.call.new + one.call.written
        replica.keep(one.key, tokens)
        one.endpoint.in_flight -= 1
        self.pool.answered(one.endpoint, one.asked, one.key)
        self.result.answered[one.endpoint.index] += 1
        if not self._changes:
            self.result.later[one.endpoint.index] += 1
        self._at(self.world.tool_s, lambda: self._begin(one.key, one.rest, tokens))
        self._serve(replica)
        self._change()

    def _change(self) -> None:
        while self._changes and sum(self.result.answered) >= self._changes[0][0]:
            _, place, up = self._changes.popleft()
            if up:
                self.replicas[place].up = True
                continue
            for one in self.replicas[place].die():
                one.endpoint.in_flight -= 1
                self._failed(one.endpoint, one.tried)
                self._send(one.key, one.call, one.prefix, one.tried, one.rest)
