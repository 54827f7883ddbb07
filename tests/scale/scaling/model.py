"""What a cluster comes to: counts, processors, bytes. Closed forms over measured costs.

One machine has one agent, one environment and one model service, each a process (`one mesh`) or
all three in one (`cells`); in `zones`, cells have a registry and collectors for every ZONE of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.scale.scaling.figures import Costs, Figures, journal_bytes
from tests.scale.scaling.fits import DirectoryCosts, FanoutCosts, RegistryCosts
from tests.scale.scaling.registry import Restart, restart

#: Machines of a zone that has a registry and collectors of its own.
ZONE: Final = 100
#: An instance renews its lease so often, in seconds (a third of it).
RENEWAL_S: Final = 5.0
#: Changes of an instance that is started anew: it drains, goes, comes.
CHANGES: Final = 3
#: The most rollouts in flight of one collector (`--concurrency`).
COLLECTOR_MOST: Final = 100_000
#: How much of a processor a process may use in the long run.
BUSY: Final = 0.7
#: Connections of a process: the usual hard limit of open files.
FILES: Final = 20_000
#: How long a registry may take to have everybody again, in seconds: twice a lease.
RESTART_S: Final = 30.0
#: Of a rolling upgrade, in seconds.
UPGRADE_S: Final = 1800.0


class Layout(Enum):
    """How the services of a machine are run, and who registers where."""

    MESH = "one mesh"
    CELLS = "cells, one registry"
    ZONES = "cells, in zones"


@dataclass(frozen=True, slots=True)
class Work:
    """What is collected.

    Attributes:
        name: for people.
        turns: model calls of a rollout, with a tool call between each two.
        model_s: seconds of a model call; all else counts for nothing beside it.
    """

    name: str
    turns: int
    model_s: float
    in_flight: int = 1_000_000

    @property
    def per_s(self) -> float:
        """Rollouts a second."""
        return self.in_flight / (self.turns * self.model_s)

    @property
    def calls(self) -> int:
        """Calls of an agent for a rollout: model, tools, and the session's three."""
        return 2 * self.turns - 1 + 3


SHORT: Final = Work("2 turns of 30 s", 2, 30.0)
LONG: Final = Work("50 turns of 20 s", 50, 20.0)


@dataclass(frozen=True, slots=True)
class Model:
    """The costs of everything."""

    costs: Costs
    registry: RegistryCosts
    directory: DirectoryCosts
    fanout: FanoutCosts

    @staticmethod
    def of(figures: Figures, costs: Costs) -> Model:
        """The model of what was measured."""
        return Model(
            costs,
            RegistryCosts.of(figures.registry),
            DirectoryCosts.of(figures.directory),
            FanoutCosts.of(figures.fanout),
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of so many machines, laid out so, that does some work."""

    model: Model
    layout: Layout
    machines: int
    work: Work = SHORT

    # -- who knows whom -----------------------------------------------------------------------

    @property
    def known(self) -> int:
        """Machines of one registry."""
        return min(ZONE, self.machines) if self.layout is Layout.ZONES else self.machines

    @property
    def registries(self) -> int:
        """How many registries there are."""
        return math.ceil(self.machines / self.known)

    @property
    def instances(self) -> int:
        """Instances in one registry."""
        return self.known * (3 if self.layout is Layout.MESH else 1)

    @property
    def watchers(self) -> int:
        """Processes that watch one registry: services, and the collectors that use it."""
        return self.instances + math.ceil(self.collectors / self.registries)

    @property
    def peers(self) -> int:
        """Connections of an agent to environments and models in other processes."""
        return 2 * self.known if self.layout is Layout.MESH else 0

    # -- rollouts -----------------------------------------------------------------------------

    @property
    def base_ms(self) -> float:
        """CPU milliseconds of a rollout over all processes, as measured on one machine."""
        costs = self.model.costs
        base = costs.mesh_ms if self.layout is Layout.MESH else costs.cell_ms
        return base + (self.work.turns - 2) * costs.turn_us / 1e3

    @property
    def choosing_ms(self) -> float:
        """What a rollout pays for choosing instances: one environment, and a model at each call;
        and the collector for choosing an agent.
        """
        named = self.known if self.layout is Layout.MESH else 1
        directory = self.model.directory
        chosen = (self.work.turns + 1) * directory.choose_us(named)
        return (chosen + directory.assign_us(self.known)) / 1e3

    @property
    def scattering_ms(self) -> float:
        """What a rollout pays because its calls go to many peers, and share fewer messages."""
        if not self.peers:
            return 0.0
        rate = self.work.per_s * self.work.calls / self.machines
        waiting = self.work.in_flight / self.machines
        fanout = self.model.fanout
        apart = fanout.call_us(self.peers, rate, waiting)
        return self.work.calls * (apart - fanout.call_us(2, rate, waiting)) / 1e3

    @property
    def rollout_ms(self) -> float:
        """CPU milliseconds of a rollout, over all processes."""
        return self.base_ms + self.choosing_ms + self.scattering_ms

    @property
    def processors(self) -> float:
        """Processors that the mesh and the collectors keep busy, in all."""
        return self.work.per_s * self.rollout_ms / 1e3

    @property
    def memory_mb(self) -> float:
        """Memory of the rollouts in flight and of the connections, on a machine, MB of 1e6."""
        costs = self.model.costs
        each = costs.mesh_kb if self.layout is Layout.MESH else costs.cell_kb
        rollouts = self.work.in_flight / self.machines * each
        return (rollouts + self.peers * self.model.fanout.peer_kb) / 1e3

    # -- collectors ---------------------------------------------------------------------------

    @property
    def collector_us(self) -> float:
        """CPU microseconds of a collector for a rollout: five events, and two for each further
        turn; and choosing an agent.
        """
        events = 5 + 2 * (self.work.turns - 2)
        own = self.model.costs.collector_us * events / 5
        return own + self.model.directory.assign_us(self.known)

    @property
    def collectors(self) -> int:
        """How many are needed; at least one for each registry."""
        by_places = self.work.in_flight / COLLECTOR_MOST
        by_time = self.work.per_s * self.collector_us / 1e6 / BUSY
        return max(math.ceil(by_places), math.ceil(by_time), self.registries)

    @property
    def collector_busy(self) -> float:
        """How much of a processor each uses."""
        return self.work.per_s * self.collector_us / 1e6 / self.collectors

    @property
    def row_bytes(self) -> float:
        """A rollout's row, without tokens."""
        costs = self.model.costs
        return costs.row_bytes + (self.work.turns - 2) * costs.turn_row_bytes

    @property
    def disk_mb_s(self) -> float:
        """What all collectors write, rows and journals, MB of 1e6 bytes a second."""
        return self.work.per_s * (self.row_bytes + journal_bytes()) / 1e6

    # -- the registry -------------------------------------------------------------------------

    @property
    def registry_busy(self) -> float:
        """How much of a processor one registry uses when nothing happens."""
        return self.instances / RENEWAL_S * self.model.registry.renew_us(self.instances) / 1e6

    @property
    def upgrade_s(self) -> float:
        """Seconds of a registry's processor for every instance started anew, one after another."""
        change_us = self.model.registry.change_us(self.instances, self.watchers)
        return CHANGES * self.instances * change_us / 1e6

    @property
    def view_s(self) -> float:
        """Seconds of every service's processor for the same."""
        return CHANGES * self.instances * self.model.directory.change_us(self.instances) / 1e6

    def restart(self) -> Restart:
        """One registry is started anew."""
        return restart(self.model.registry, self.instances, self.watchers)

    # -- what it must keep to -----------------------------------------------------------------

    def restarts_in_time(self) -> bool:
        """Whether a registry that was started anew has everybody soon enough."""
        seconds = self.restart().seconds
        return seconds is not None and seconds <= RESTART_S


#: Limits, and whether a cluster keeps them.
LIMITS: Final[dict[str, Callable[[Cluster], bool]]] = {
    "choosing instances doubles a rollout's CPU": lambda one: one.choosing_ms <= one.base_ms,
    "calls to many peers double a rollout's CPU": lambda one: one.scattering_ms <= one.base_ms,
    f"renewals of leases use {BUSY:.0%} of a registry's processor": lambda one: (
        one.registry_busy <= BUSY
    ),
    "a restarted registry does not list all services after 30 s": Cluster.restarts_in_time,
    "a rolling upgrade costs a registry half an hour of CPU time": (
        lambda one: one.upgrade_s <= UPGRADE_S
    ),
    "a rolling upgrade costs each service half an hour of CPU time": (
        lambda one: one.view_s <= UPGRADE_S
    ),
    "an agent has 20,000 connections": lambda one: one.peers <= FILES,
}
_MOST: Final = 1_000_000


def most_machines(model: Model, layout: Layout, keeps: Callable[[Cluster], bool]) -> int | None:
    """The most machines that keep to a limit; None: it holds for a million of them."""
    least, most = 1, 2
    while keeps(Cluster(model, layout, most)):
        least, most = most, most * 2
        if most > _MOST:
            return None
    while most - least > max(1, least // 50):
        middle = (least + most) // 2
        if keeps(Cluster(model, layout, middle)):
            least = middle
        else:
            most = middle
    return least
