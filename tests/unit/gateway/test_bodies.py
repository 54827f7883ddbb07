"""The bytes of bodies that a gateway holds, of all rollouts together."""

from __future__ import annotations

from contextlib import ExitStack

from gymmesh_agent.gateway.bodies import HeldBodies

MIB = 1 << 20


def fill(bodies: HeldBodies, stack: ExitStack, rollout: str) -> int:
    """How many MiB a rollout gets with one body after another; it keeps them."""
    for taken in range(1000):
        if not stack.enter_context(bodies.holding(rollout))(MIB):
            return taken
    raise AssertionError("there is no bound")


def test_each_leaves_room_for_the_next() -> None:
    bodies = HeldBodies(64 * MIB)
    with ExitStack() as stack:
        taken = [fill(bodies, stack, f"r{number}") for number in range(6)]
        assert taken[0] == 32
        assert all(taken[:4]), taken
        # However many hold as much as they can, a usual request is read.
        with bodies.holding("next") as hold:
            assert hold(100_000)
            assert not hold(60_000)


def test_what_is_no_longer_held_is_free_again() -> None:
    bodies = HeldBodies(64 * MIB)
    for _ in range(3):
        with bodies.holding("a") as hold:
            assert hold(30 * MIB)
            assert not hold(30 * MIB)
    with bodies.holding("b") as hold:
        assert hold(32 * MIB)
