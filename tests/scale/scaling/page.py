"""The tables of docs/ideas/scaling.md: what was predicted and measured, what a cluster comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tests.scale.report import table
from tests.scale.scaling import collectors, zone
from tests.scale.scaling.figures import Costs, Figures, journal_bytes
from tests.scale.scaling.measure_fanout import IN_FLIGHT
from tests.scale.scaling.measure_loss import LossFigures
from tests.scale.scaling.model import (
    BUSY,
    FILES,
    LIMITS,
    LONG,
    RESTART_S,
    SHORT,
    UPGRADE_S,
    ZONE,
    Cluster,
    Layout,
    Model,
    most_machines,
)

MACHINES: Final = (100, 1_000, 10_000)
#: Of a zone lost: so many rollouts in flight stand for all.
_SAMPLE: Final = 3_000
_ZONES: Final = 3


def sections(figures: Figures, costs: Costs) -> dict[str, str]:
    """The page's parts, by their names."""
    model = Model.of(figures, costs)
    return {
        "costs": costs_table(figures, costs, model),
        "measured": f"{held_table(figures, model)}\n\n{figures.machine} `make bench-scaling`.",
        "clusters": clusters(model),
        "limits": limits_table(model),
        "registry": restart_table(model),
        "zone": zone_table(),
        "collectors": collectors_table(model),
    }


# -- what goes in -----------------------------------------------------------------------------


def costs_table(figures: Figures, costs: Costs, model: Model) -> str:
    """The costs that the model computes with, and where they are from."""
    registry, directory, fanout = model.registry, model.directory, model.fanout
    page, journal = (
        "[performance](../reference/performance.md)",
        "[its format](../reference/journal.md#format)",
    )
    here = "`make bench-scaling`"
    rows_have = f"{costs.row_bytes:.0f} bytes, and {costs.turn_row_bytes:.0f} bytes"
    shares = [f"{name} {us:.0f} µs" for name, us in figures.collectors[0].cpu_us.items() if us >= 1]
    begin, instance, watcher = registry.change
    changes = f"{begin:.0f} + {instance:.2f} I + {watcher:.0f} W µs"
    calls = (
        f"{fanout.call:.0f} µs for the call itself, and a share of the {fanout.message:.0f} µs for "
        "the message that carries the call"
    )
    rows = [
        [
            "CPU of a rollout of two turns, all processes of a mesh",
            f"{costs.mesh_ms:.2f} ms",
            page,
        ],
        [
            "CPU of a rollout of two turns in each process of a mesh, on a busy machine",
            ", ".join(shares),
            here,
        ],
        ["CPU of a rollout of two turns in a cell", f"{costs.cell_ms:.2f} ms", page],
        ["CPU of each further turn", f"{costs.turn_us:.0f} µs", page],
        [
            "memory of a rollout that waits for the model's answer, in a mesh",
            f"{costs.mesh_kb:.1f} KB",
            page,
        ],
        [
            "memory of a rollout that waits for the model's answer, in a cell",
            f"{costs.cell_kb:.1f} KB",
            page,
        ],
        [
            "CPU of a collector for the five events of a rollout",
            f"{costs.collector_us:.0f} µs",
            page,
        ],
        ["size of a row with two turns, and size of each further turn", rows_have, page],
        ["size of a rollout's records in the journal", f"{journal_bytes()} bytes", journal],
        ["CPU of the registry to renew a lease", _line(registry.renew, "I"), here],
        ["CPU of the registry to send a change to all watchers", changes, here],
        ["CPU of the registry for a new watcher", _line(registry.snapshot, "I"), here],
        ["memory of the registry for a watcher", _line(registry.watcher_memory, "I", "KB"), here],
        [
            "size of an instance in a message to a watcher",
            f"{registry.instance_bytes:.0f} bytes",
            here,
        ],
        ["CPU to choose the instance for a call", _line(directory.choose, "n"), here],
        ["CPU to choose the agent for an attempt", _line(directory.assign, "n"), here],
        ["CPU of a watcher to apply a change", _line(directory.change, "n"), here],
        ["CPU of a call between two processes, both processes together", calls, here],
        [
            "memory of a connection between two processes, both processes together",
            f"{fanout.peer_kb:.0f} KB",
            here,
        ],
    ]
    return table(["item", "cost", "measured by"], rows)


def _line(line: tuple[float, float], name: str, unit: str = "µs") -> str:
    begin = f"{line[0]:.0f} + " if line[0] >= 0.5 else ""
    return f"{begin}{line[1]:.2f} {name} {unit}"


# -- predicted and measured -------------------------------------------------------------------


def held(figures: Figures, model: Model) -> list[tuple[str, float, float, str]]:
    """What, predicted, measured, the unit. Nothing here was used to fit the model."""
    found: list[tuple[str, float, float, str]] = []
    last = figures.registry[-1]
    size = f"registry, {last.instances} instances, {last.watchers} watchers"
    registry = model.registry
    found += [
        (f"{size}: renewing a lease", registry.renew_us(last.instances), last.renew_us, "µs"),
        (
            f"{size}: sending a change to all watchers",
            registry.change_us(last.instances, last.watchers),
            last.change_us,
            "µs",
        ),
        (
            f"{size}: a new watcher",
            registry.snapshot_us(last.instances),
            last.snapshot_us,
            "µs",
        ),
        (
            f"{size}: memory of a watcher",
            registry.watcher_kb(last.instances),
            last.watcher_kb,
            "KB",
        ),
    ]
    for one in figures.directory[1:-1]:
        directory, known = model.directory, f"a process that knows {one.instances} instances"
        found += [
            (
                f"{known}: choosing the instance for a call",
                directory.choose_us(one.instances),
                one.choose_us,
                "µs",
            ),
            (
                f"{known}: applying a change",
                directory.change_us(one.instances),
                one.change_us,
                "µs",
            ),
            (
                f"{known}: finding the least busy agent",
                directory.assign_us(one.instances),
                one.assign_us,
                "µs",
            ),
        ]
    for peers in figures.fanout[1:-1]:
        what = f"{IN_FLIGHT} calls in flight to {peers.peers} peers: CPU of a call"
        predicted = model.fanout.call_us(peers.peers, peers.calls_per_s, IN_FLIGHT)
        found.append((what, predicted, peers.call_us, "µs"))
    shared = collectors.Shared.of(figures.collectors[0])
    for several in figures.collectors[1:]:
        what = f"{several.collectors} collectors on one mesh: "
        count = several.collectors
        each, cost = shared.each_per_s(count), sum(shared.cpu_us.values())
        found += [
            (f"{what}rollouts per second, all collectors", shared.per_s(count), several.per_s, ""),
            (f"{what}rollouts per second, slowest collector", each, several.least_per_s, ""),
            (f"{what}CPU per rollout, all processes", cost, sum(several.cpu_us.values()), "µs"),
        ]
    whole = figures.loss
    if whole is None:
        return found
    loss = predicted_loss(whole)
    lost, again = float(loss.lost), float(whole.lost_attempts)
    found += [
        ("one of two meshes killed: attempts lost", lost, again, ""),
        ("one of two meshes killed: time until the run ended", loss.seconds, whole.lost_s, "s"),
    ]
    return found


def predicted_loss(one: LossFigures) -> zone.Loss:
    """What the simulation says of the run in which a mesh was killed; how long an attempt takes
    is taken from the run in which none was.
    """
    rounds = -(-one.rollouts // one.in_flight)
    course = zone.Course(
        one.rollouts, one.in_flight, one.whole_s / rounds, 0.0, 2, one.reconnect_s,
        lost_at_s=one.lost_at_s,
    )  # fmt: skip
    return zone.run(course)


def held_table(figures: Figures, model: Model) -> str:
    """Predicted and measured, side by side."""
    rows = [
        [what, _unit(predicted, unit), _unit(measured, unit), f"{measured / predicted:.2f}"]
        for what, predicted, measured, unit in held(figures, model)
    ]
    return table(["item", "predicted", "measured", "measured / predicted"], rows)


def _unit(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or value == int(value) else 1
    return f"{value:,.{digits}f} {unit}".rstrip()


# -- clusters ---------------------------------------------------------------------------------


def clusters(model: Model) -> str:
    """What a million rollouts in flight come to, by layout and machines."""
    texts = []
    for layout in Layout:
        texts.append(f"**{layout.value[0].upper()}{layout.value[1:]}.**\n\n{_sizes(model, layout)}")
    return "\n\n".join(texts)


def _sizes(model: Model, layout: Layout) -> str:
    short = [Cluster(model, layout, count, SHORT) for count in MACHINES]
    long = [Cluster(model, layout, count, LONG) for count in MACHINES]
    heads = ["machines", *(f"{count:,}" for count in MACHINES)]
    rows = [
        _row(
            "rollouts in flight per machine",
            short,
            lambda one: f"{one.work.in_flight / one.machines:,.0f}",
        ),
        _row(
            "memory for rollouts and connections per machine",
            short,
            lambda one: f"{one.memory_mb:,.0f} MB",
        ),
        _row("CPU per rollout, 2 turns", short, _rollout),
        _row("CPU per rollout, 50 turns", long, _rollout),
        _row("busy processors, 2 turns of 30 s", short, lambda one: f"{one.processors:,.0f}"),
        _row("busy processors, 50 turns of 20 s", long, lambda one: f"{one.processors:,.0f}"),
        _row(
            "connections per agent",
            short,
            lambda one: _bold(f"{one.peers:,}", one.peers <= FILES),
        ),
        _row("number of registries", short, lambda one: f"{one.registries:,}"),
        _row("instances per registry", short, lambda one: f"{one.instances:,}"),
        _row(
            "CPU use of a registry for renewals of leases",
            short,
            lambda one: _bold(_busy(one.registry_busy), one.registry_busy <= BUSY),
        ),
        _row("time until a restarted registry lists all services", short, _restart),
        _row(
            "a registry's CPU for a rolling upgrade",
            short,
            lambda one: _bold(_time(one.upgrade_s), one.upgrade_s <= UPGRADE_S),
        ),
        _row(
            "each service's CPU for a rolling upgrade",
            short,
            lambda one: _bold(_time(one.view_s), one.view_s <= UPGRADE_S),
        ),
        _row("number of collectors, 2 turns", short, lambda one: f"{one.collectors:,}"),
        _row("CPU use of each collector, 2 turns", short, lambda one: _busy(one.collector_busy)),
        _row("number of collectors, 50 turns", long, lambda one: f"{one.collectors:,}"),
        _row("CPU use of each collector, 50 turns", long, lambda one: _busy(one.collector_busy)),
    ]
    return table(heads, rows)


def _row(what: str, sizes: Iterable[Cluster], said: Callable[[Cluster], str]) -> list[str]:
    return [what, *map(said, sizes)]


def _rollout(one: Cluster) -> str:
    sound = one.choosing_ms <= one.base_ms and one.scattering_ms <= one.base_ms
    return _bold(f"{one.rollout_ms:,.2f} ms", sound)


def _restart(one: Cluster) -> str:
    again = one.restart()
    if again.seconds is None:
        return "**never complete**"
    return _bold(f"{again.seconds:.0f} s", again.seconds <= RESTART_S)


def _bold(text: str, sound: bool) -> str:
    return text if sound else f"**{text}**"


def _busy(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:,.0%}"


def _time(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:.1f} s"


# -- limits -----------------------------------------------------------------------------------


def limits_table(model: Model) -> str:
    """The most machines for each limit, by layout."""
    rows = []
    for what, keeps in LIMITS.items():
        most = [most_machines(model, layout, keeps) for layout in Layout]
        rows.append([what, *("never" if one is None else f"{_round(one):,}" for one in most)])
    rows.sort(key=lambda row: float("inf") if row[1] == "never" else float(row[1].replace(",", "")))
    return table(["limit", *(f"machines ({one.value})" for one in Layout)], rows)


def _round(value: int) -> int:
    """To two digits: the model is no better than that."""
    scale: int = 10 ** max(0, len(str(value)) - 2)
    return round(value / scale) * scale


# -- simulations ------------------------------------------------------------------------------


def restart_table(model: Model) -> str:
    """A restarted registry, by the number of services that register again."""
    rows = []
    for services in (100, 300, 1_000, 3_000, 10_000, 30_000):
        found = Cluster(model, Layout.CELLS, services).restart()
        seconds = "never complete" if found.seconds is None else f"{found.seconds:.0f} s"
        rows.append(
            [f"{services:,}", seconds, f"{found.given_up:,.0f}", f"{found.sent_gb:,.2f} GB"]
        )
    heads = [
        "services",
        "time until the registry lists all services, and all services have the list",
        "abandoned calls",
        "data sent to watchers",
    ]
    return table(heads, rows)


def zone_table() -> str:
    """One of three zones is lost in the middle of a run."""
    rows = []
    for what, full in (
        ("the other zones can run more rollouts", False),
        ("the other zones already run as many rollouts as they can", True),
    ):
        whole = zone.run(_course(full=full, lost_at_s=None))
        loss = zone.run(_course(full=full, lost_at_s=300.0))
        scale = SHORT.in_flight / _SAMPLE
        work = loss.wasted_s / (SHORT.turns * SHORT.model_s * _SAMPLE)
        rows.append(
            [
                what,
                f"{loss.lost * scale:,.0f}",
                f"{work:.0%} of the work of all rollouts in flight",
                f"{loss.slowest:.0%} of the usual rate",
                f"{whole.seconds:,.0f} s",
                f"{loss.seconds - whole.seconds:.0f} s",
            ]
        )
    heads = [
        "case",
        "attempts lost",
        "repeated work",
        "rate of finished rollouts in the worst ten seconds",
        "duration of the run without the loss",
        "time that the loss adds",
    ]
    return table(heads, rows)


def _course(*, full: bool, lost_at_s: float | None) -> zone.Course:
    mean_s = SHORT.turns * SHORT.model_s
    return zone.Course(
        10 * _SAMPLE, _SAMPLE, mean_s, 0.5, _ZONES, 30.0, full=full, lost_at_s=lost_at_s
    )


def collectors_table(model: Model) -> str:
    """How many collectors a million rollouts in flight need, and how much each writes."""
    rows = []
    for work in (SHORT, LONG):
        for agents in (1, 10, ZONE, 1_000, 10_000):
            one = Cluster(model, Layout.CELLS, agents, work)
            most = 1e6 / one.collector_us
            rows.append(
                [
                    work.name,
                    f"{agents:,}",
                    f"{one.collector_us:,.0f} µs",
                    f"{most:,.0f}",
                    f"{one.collectors}",
                    f"{one.disk_mb_s / one.collectors:.1f} MB/s",
                ]
            )
    heads = [
        "rollouts",
        "agents per collector",
        "collector's CPU per rollout",
        "maximum rollouts per second of a collector",
        "collectors for a million rollouts in flight",
        "data that each collector writes",
    ]
    return table(heads, rows)
