"""Simulates rules that choose a model endpoint for each rollout.

    python tests/scale/bench_routing.py [--endpoints 4] [--at-a-time 96] [--death]

The simulation is in routing_bench/simulation.py. The lines named `margin` are the router of the
model service. Nothing is measured, so two runs print the same.

The columns: hits is the share of calls that found the prefix of their rollout at the endpoint, of
all calls that continue a rollout. tokens is the share of prefix tokens that the endpoint did not
read again. max/mean is the work of the busiest endpoint divided by the average work. wait and p99
are the seconds for which calls queued at an endpoint. time is the seconds until all rollouts
completed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.scale.routing_bench import policies
from tests.scale.routing_bench.simulation import MakeRouter, Simulation, World

ROWS: tuple[tuple[str, MakeRouter | None, float], ...] = (
    ("round robin", policies.RoundRobin, 0),
    ("least loaded", policies.LeastLoaded, 0),
    ("hash only", policies.HashOnly, 0),
    ("idle, then stay", policies.IdleThenStay, 0),
    ("margin 8, no memory", lambda names: policies.Forgetful(names, 8), 8),
    *((f"margin {margin}", None, margin) for margin in (0, 2, 4, 8, 16, 32)),
)
_HEADS = ("", "hits", "tokens", "max/mean", "wait", "p99", "time", "failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--endpoints", type=int, default=4, help="number of model endpoints (default: 4)"
    )
    parser.add_argument(
        "--at-a-time", type=int, default=96, help="rollouts at the same time (default: 96)"
    )
    parser.add_argument("--rollouts", type=int, default=800, help="rollouts (default: 800)")
    parser.add_argument(
        "--death", action="store_true", help="one endpoint fails and later recovers"
    )
    said = parser.parse_args()
    world = World(endpoints=said.endpoints, at_a_time=said.at_a_time, rollouts=said.rollouts)
    if said.death:
        third = Simulation(world).run().calls // 3
        changes = ((third, 0, False), (2 * third, 0, True))
        world = World(**{**vars(world), "changes": changes})
    lines = [_HEADS]
    for name, make, margin in ROWS:
        done = Simulation(world, make, margin).run()
        share = (f"{done.hit_rate:.1%}", f"{done.token_rate:.1%}", f"{done.balance:.3f}")
        times = (f"{done.mean_wait:.3f}", f"{done.wait(0.99):.2f}", f"{done.seconds:.0f}")
        lines.append((name, *share, *times, str(done.failures)))
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADS))]
    print(f"{world.endpoints} endpoints, {world.slots} calls at a time each, {done.calls} calls")
    for first, *rest in lines:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join((first.ljust(widths[0]), *cells)))
    columns = (__doc__ or "").rpartition("\n\n")[2].strip()
    print(f"\n{columns}")


if __name__ == "__main__":
    main()
