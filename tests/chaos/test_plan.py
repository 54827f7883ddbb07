"""A seed's schedule is the seed's alone, and twenty of them leave no kind of fault out."""

from __future__ import annotations

from tests.chaos.plan import COLLECTOR, ENDPOINT, STORMS, WIRE, schedule_of, world_of

SEEDS = range(20)


def test_a_seed_always_means_the_same() -> None:
    for seed in SEEDS:
        assert world_of(seed, 500) == world_of(seed, 500)
        assert schedule_of(world_of(seed, 500)) == schedule_of(world_of(seed, 500))


def test_each_has_enough_rollouts_and_a_collector_that_dies() -> None:
    for seed in SEEDS:
        world = world_of(seed, 500)
        assert world.rollouts >= 500
        times = [fault.at_s for fault in schedule_of(world)]
        assert times == sorted(times)
        deaths = [one for one in schedule_of(world) if one.target == COLLECTOR]
        assert {"kill", "power cut"} & {one.kind for one in deaths}


def test_all_kinds_are_drawn() -> None:
    worlds = [world_of(seed, 500) for seed in SEEDS]
    faults = [fault for world in worlds for fault in schedule_of(world)]
    kinds = {fault.kind for fault in faults}
    assert kinds >= {*STORMS, *WIRE, "kill", "power cut", "stop", "partition", "disk full"}
    assert kinds >= {"file limit", "clock jump"}
    killed = {fault.target for fault in faults if fault.kind == "kill"}
    assert killed >= {COLLECTOR, ENDPOINT, *(name for one in worlds for name in one.services)}
    assert {world.layout for world in worlds} == {"mesh", "cell"}
