"""How near the width that is found comes to the best fixed one, at endpoints that refuse calls.

The best fixed width gives what the endpoint can take at most: its places over its latency, its
rate, or, where what is refused does not depend on the width, what all the calls asked for give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.model.simulated import Bucket, Chance, Changing, Clients, Places, Result, World, run

Worlds = Callable[[], Sequence[World]]


def share_of_best(best: float, worlds: Worlds, least: float = 0.9, **more: Any) -> Result:
    settings: dict[str, Any] = {"seconds": 40.0, "warm_up": 10.0, **more}
    result = run(Clients(worlds(), **settings))
    print(f"{result.answered:.1f} of {best:.1f} calls/s", result)
    assert result.answered >= least * best
    return result


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("best", "worlds", "more"),
    [
        (60.0, lambda: [Places(6)], {}),
        (200.0, lambda: [Places(20)], {}),
        (10.0, lambda: [Places(20, latency=2.0)], {"seconds": 120.0, "warm_up": 20.0}),
        (100.0, lambda: [Bucket(100.0)], {}),
        (100.0, lambda: [Bucket(100.0, says_after=True)], {}),
        (30.0, lambda: [Bucket(30.0, latency=1.0)], {}),
        (300.0, lambda: [Places(30)], {"clients": 3}),
        (100.0, lambda: [Bucket(100.0)], {"clients": 3}),
        (260.0, lambda: [Places(6), Places(20)], {}),
        (100.0, lambda: [Changing(Places(100), Places(10), 5.0)], {}),
    ],
    ids=[
        "six places", "twenty places", "slow answers", "a token bucket", "one with Retry-After",
        "a bucket of slow answers", "three clients", "three clients at a bucket", "two endpoints",
        "places that are taken away",
    ],
)  # fmt: skip
def test_it_is_near_the_best(best: float, worlds: Worlds, more: dict[str, Any], seed: int) -> None:
    result = share_of_best(best, worlds, seed=seed, **more)
    assert result.failed < 0.02


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "worlds",
    [
        lambda: [Chance(every=15)],
        lambda: [Chance(share=0.07)],
        lambda: [Chance(share=0.2)],
        lambda: [Chance(share=0.3, latency=0.02)],
    ],
    ids=["every fifteenth", "seven in a hundred", "a fifth", "three in ten, fast"],
)
def test_chance_costs_no_width(worlds: Worlds, seed: int) -> None:
    most = run(Clients(worlds(), fixed=64, seconds=12.0, warm_up=4.0, seed=seed))
    result = share_of_best(most.answered, worlds, seconds=25.0, seed=seed)
    assert result.widths == [64]
    assert result.failed < 0.001


@pytest.mark.parametrize(
    ("places", "latency", "stunned_s", "seed", "least"),
    [
        (10, 0.2, 2.0, 1, 0.9),
        (20, 0.5, 2.0, 3, 0.9),
        # A try costs a seventh of all answers between two of them.
        (10, 0.2, 10.0, 1, 0.85),
        (10, 0.2, 10.0, 2, 0.85),
    ],
)
def test_an_endpoint_that_takes_long_to_recover_is_not_pressed_again_and_again(
    places: int, latency: float, stunned_s: float, seed: int, least: float
) -> None:
    """Each try of a larger width costs all answers of `stunned_s` seconds."""
    share_of_best(
        places / latency,
        lambda: [Places(places, latency=latency, stunned_s=stunned_s)],
        least,
        asked=64,
        seconds=400.0 + 20.0 * stunned_s,
        warm_up=60.0,
        seed=seed,
    )


@pytest.mark.parametrize(
    ("places", "latency", "clients"), [(40, 0.1, 5), (30, 1.0, 3)], ids=["five", "three slow ones"]
)
def test_no_client_of_a_full_endpoint_is_kept_out_by_another(
    places: int, latency: float, clients: int
) -> None:
    """One alone could fill it. A client that finds no room gives its calls up in the end."""
    result = share_of_best(
        places / latency,
        lambda: [Places(places, latency=latency)],
        clients=clients,
        seconds=120.0,
        warm_up=60.0,
    )
    assert result.failed < 0.05


def test_a_second_without_answers_is_made_up_for_quickly() -> None:
    def worlds() -> list[World]:
        return [Changing(Changing(Places(100), Places(0), 12.0), Places(100), 13.0)]

    result = share_of_best(640.0 * 0.9, worlds, seconds=20.0)
    assert result.widths == [64]


def test_a_fixed_width_that_is_too_large_loses_calls_and_one_too_small_answers() -> None:
    small = run(Clients([Places(20)], fixed=10, seconds=20.0))
    assert small.answered < 0.6 * 200


@pytest.mark.parametrize(
    "worlds",
    [
        lambda: [Places(6)],
        lambda: [Places(20, latency=0.2)],
        lambda: [Bucket(100.0)],
        lambda: [Chance(every=15)],
    ],
    ids=["six places", "twenty slow places", "a token bucket", "chance"],
)
def test_no_fixed_width_that_loses_no_calls_is_much_better(worlds: Worlds) -> None:
    """Compared with the best of a sweep of fixed widths."""
    sweep = {
        width: run(Clients(worlds(), fixed=width, seconds=20.0))
        for width in (1, 3, 6, 8, 12, 20, 32, 64)
    }
    whole = {width: one.answered for width, one in sweep.items() if one.failed < 0.02}
    best = max(whole, key=whole.__getitem__)
    print(f"fixed at {best}: {whole}")
    share_of_best(whole[best], worlds)
