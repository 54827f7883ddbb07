"""What routing is worth, on a small simulated world; `make bench-routing` prints a large one."""

from __future__ import annotations

from functools import cache

import pytest

from gymmesh_model.routing import Router
from tests.scale.routing_bench import policies
from tests.scale.routing_bench.simulation import Result, Simulation, World

WORLD = World(endpoints=3, slots=16, rollouts=240, at_a_time=48)
CALLS = Simulation(WORLD).run().calls
DEATH = World(
    endpoints=3,
    slots=16,
    rollouts=240,
    at_a_time=40,
    changes=((CALLS // 3, 1, False), (CALLS // 2, 1, True)),
)
OTHERS: dict[str, type[Router]] = {
    "round robin": policies.RoundRobin,
    "least loaded": policies.LeastLoaded,
}


@cache
def ran(name: str = "", margin: float = 8, world: World = WORLD) -> Result:
    make = {**OTHERS, "hash only": policies.HashOnly}.get(name)
    return Simulation(world, make, margin).run()


def test_every_call_is_answered() -> None:
    for result in (ran(), ran(world=DEATH)):
        assert result.failures == 0
        assert sum(result.answered) == result.calls == CALLS


def test_the_same_seed_gives_the_same_result() -> None:
    assert Simulation(WORLD).run() == Simulation(WORLD).run()


@pytest.mark.parametrize("other", OTHERS)
def test_prefixes_are_found_that_others_lose(other: str) -> None:
    assert ran().hit_rate > 0.95
    assert ran().token_rate > 0.95
    assert ran(other).hit_rate < 0.45
    assert ran().seconds < ran(other).seconds


def test_the_balance_is_near_that_of_the_least_loaded() -> None:
    assert ran("least loaded").balance < 1.02
    assert ran().balance < 1.1
    assert ran().balance < ran("hash only").balance
    assert ran().mean_wait <= ran("hash only").mean_wait


def test_a_wider_margin_trades_balance_for_prefixes() -> None:
    rates = [ran(margin=margin).hit_rate for margin in (0, 2, 8, 32)]
    balances = [ran(margin=margin).balance for margin in (2, 8, 32)]
    assert rates == sorted(rates)
    assert balances == sorted(balances)


def test_a_death_costs_the_prefixes_of_one_endpoint() -> None:
    """Those that it held are read once more, and the others stay where they are."""
    result = ran(world=DEATH)
    assert result.hit_rate > 0.9
    # The calls that were in it, and one probe a second while it was gone.
    assert 0 < result.retries < result.calls * 0.05
    # It is back at work afterwards.
    assert result.later[1] > 0
