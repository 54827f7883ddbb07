"""Compares the CPU cost of gym-cli and of the collectors in other languages.

    python tests/scale/bench_clients.py [--quick] [--rounds N] [--rollouts N] [--in-flight N]
                                        [--only LANGUAGE …]

All collectors collect the same rollouts from the same mesh. Agent, environment, model, registry
and a fake endpoint are separate processes, as in bench_rollout.py. A rollout has two model calls
and a tool call. Each run of a collector is a separate process. If a rollout of a run does not
complete, the bench fails. The collectors take turns, in a different order in each round.

The CPU of a collector is the user and system time of its process after the first quarter of the
rollouts. So the start of the process, and most of the compilation in a virtual machine, are not
counted. The CPU of the mesh is the time of the mesh's processes during the same period, without
the endpoint. Before the rounds, each collector runs once, and the bench asks the agent for the
number of rollouts in flight and for the RPC. If this number is below the requested number, the
bench fails. Without `--quick` and `--only`, the bench writes its section of
docs/reference/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import orjson

from gymmesh_runtime.serving.loop import run
from tests.scale.clients_bench.collectors import (
    LANGUAGES,
    OURS,
    TITLES,
    CollectorFailed,
    Cost,
    Order,
    collect,
    toolchain,
)
from tests.scale.clients_bench.mesh import Target, mesh
from tests.scale.report import machine, table, write_section
from tests.scale.rollout_bench.model import Endpoint, endpoint

_LATENCIES_S: Final = (0.0, 0.1)
_LOOK_TICKS: Final = 5  # samples between two looks at the agent
# Of what is to be in flight, the share that the agent must have seen at once: between the end of a
# rollout and the start of the next, one is on its way.
_SEEN: Final = 0.95
TASK: Final = {
    "task_id": "sum",
    "environment": "adder",
    "responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 3?"}]},
    "wanted": "5",
}


@dataclass(slots=True)
class Found:
    """What was measured of one collector; costs by the model's longest latency, in seconds."""

    in_flight: int = 0
    rpc: str = ""
    costs: dict[float, list[Cost]] = field(default_factory=dict)


class Watch:
    """Looks at the agent now and then during a run."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ticks = 0
        self._before = target.figures().calls
        self.most = 0

    def __call__(self) -> None:
        self._ticks += 1
        if self._ticks % _LOOK_TICKS == 0:
            self.most = max(self.most, self._target.figures().in_flight)

    def rpcs(self) -> str:
        """The RPCs that rollouts were run by, of those that have ended."""
        calls = self._target.figures().calls - self._before
        return ", ".join(sorted(set(calls) - {"GetAgent"}))


def measure(
    target: Target, model: Endpoint, names: Sequence[str], options: argparse.Namespace
) -> dict[str, Found]:
    """Every collector at every latency. Raises CollectorFailed."""
    found = {name: Found() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "tasks.jsonl"
        tasks.write_bytes(orjson.dumps(TASK) + b"\n")
        runs = iter(range(1_000_000))

        def order(rollouts: int) -> Order:
            place = Path(folder) / str(next(runs))
            return Order(target.agent, tasks, place, rollouts, options.in_flight)

        model.answer_within(0.0, _LATENCIES_S[-1])
        for name in names:
            _look(target, name, order(max(4 * options.in_flight, 100)), found[name])
            print(f"{name:>12}  {found[name].in_flight} in flight by {found[name].rpc}", flush=True)
        for late_s in _LATENCIES_S:
            model.answer_within(0.0, late_s)
            for number in range(options.rounds):
                turn = number % len(names)
                for name in [*names[turn:], *names[:turn]]:
                    one = collect(name, order(options.rollouts), target.pids)
                    found[name].costs.setdefault(late_s, []).append(one)
                    print(f"{name:>12}  {_latency(late_s)}  {_line(one)}", flush=True)
    return found


def _look(target: Target, name: str, order: Order, found: Found) -> None:
    """One run that isn't measured but watched."""
    watch = Watch(target)
    collect(name, order, target.pids, watch)
    found.in_flight, found.rpc = watch.most, watch.rpcs()
    if found.in_flight < _SEEN * order.in_flight:
        raise CollectorFailed(
            f"{name} had at most {found.in_flight} rollouts in flight, expected {order.in_flight}"
        )


def _line(one: Cost) -> str:
    return (
        f"{one.per_s:6.0f} rollouts/s; CPU per rollout: collector {one.cpu_ms:.3f} ms "
        f"({one.whole_ms:.3f} ms with its start), mesh {one.mesh_ms:.3f} ms"
    )


def _latency(late_s: float) -> str:
    return f"0–{late_s * 1e3:.0f} ms" if late_s else "0 ms"


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median over the rounds of one's figure to the other's in the same round."""
    return statistics.median(one / other for one, other in zip(of, to, strict=True))


def report(found: dict[str, Found], options: argparse.Namespace) -> str:
    """The section of the page."""
    heads = [
        "model's latency, collector",
        "rollouts per second",
        "CPU of the collector, ms per rollout",
        "CPU of the collector with its start and end, ms per rollout",
        "CPU of the mesh, ms per rollout",
    ]
    rows = []
    for late_s in _LATENCIES_S:
        ours = found[OURS].costs[late_s]
        for name, one in found.items():
            cells = [f"{_latency(late_s)}, {TITLES.get(name, name)}"]
            for figure, digits in (("per_s", 0), ("cpu_ms", 3), ("whole_ms", 3), ("mesh_ms", 3)):
                values = [getattr(cost, figure) for cost in one.costs[late_s]]
                against = ratio(values, [getattr(cost, figure) for cost in ours])
                text = f"{statistics.median(values):.{digits}f}"
                cells.append(text if name == OURS else f"{text} ({against:.2f} ×)")
            rows.append(cells)
    compiled = [f"{TITLES[name]}: {toolchain(name)}" for name in found if name != OURS]
    seen = min(one.in_flight for one in found.values())
    rpcs = sorted({one.rpc for one in found.values()})
    return "\n\n".join(
        [
            f"The collectors use the RPC {' and '.join(f'`{rpc}`' for rpc in rpcs)} with "
            f"{options.in_flight} rollouts in flight. The agent had at least {seen} rollouts in "
            f"flight from every collector. Each run has {options.rollouts:,} rollouts, and all "
            f"completed. The figures are medians of {options.rounds} rounds. Brackets have the "
            "ratio to the figure of `gym-cli` in the same round (the median of the rounds):",
            table(heads, rows),
            f"Versions: {'; '.join(compiled)}. {machine()} `make bench-clients`.",
        ]
    )


async def _drive(names: Sequence[str], options: argparse.Namespace) -> str:
    with endpoint() as model:
        async with mesh(model.url) as target:
            found = await asyncio.to_thread(measure, target, model, names, options)
    return report(found, options)


def main() -> int:
    """Prints the figures and writes the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round with a quarter of the rollouts; don't write the page",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument(
        "--rollouts", type=int, default=6144, help="rollouts in each run (default: 6144)"
    )
    parser.add_argument(
        "--in-flight", type=int, default=512, help="rollouts in flight (default: 512)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=LANGUAGES,
        default=LANGUAGES,
        help="compare gym-cli only with these languages, and don't write the page",
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.rollouts = 1, max(options.rollouts // 4, 2 * options.in_flight)
    names = [OURS, *(name for name in LANGUAGES if name in options.only)]
    try:
        text = run(_drive(names, options))
    except CollectorFailed as error:
        print(f"bench-clients: {error}", file=sys.stderr)
        return 1
    print(f"\n{text}\n")
    if not options.quick and len(names) == 1 + len(LANGUAGES):
        write_section("make bench-clients", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
