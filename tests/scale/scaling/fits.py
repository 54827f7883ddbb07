"""Costs as straight lines through what was measured, for the sizes between and beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.scale.scaling.measure_directory import DirectoryFigures
from tests.scale.scaling.measure_fanout import IN_FLIGHT, FanoutFigures
from tests.scale.scaling.measure_registry import RegistryFigures

#: So long a mux stream waits for company, in seconds: for each call in flight, and at most.
_WAIT_PER_CALL_S = 40e-6
_LONGEST_WAIT_S = 0.02


@dataclass(frozen=True, slots=True)
class RegistryCosts:
    """Microseconds of the registry's processor, and KB, by instances listed and watchers.

    A change is sent to every watcher, and a watcher that comes is sent every instance.
    """

    renew: tuple[float, float]
    change: tuple[float, float, float]
    snapshot: tuple[float, float]
    instance_bytes: float
    watcher_memory: tuple[float, float]

    @staticmethod
    def of(figures: Sequence[RegistryFigures]) -> RegistryCosts:
        """Through the first three sizes: another number of instances, another of watchers."""
        base, larger, watched = figures[:3]
        return RegistryCosts(
            _line((base.instances, base.renew_us), (larger.instances, larger.renew_us)),
            _plane(base, larger, watched),
            _line((base.instances, base.snapshot_us), (larger.instances, larger.snapshot_us)),
            larger.snapshot_bytes / larger.instances,
            _line((base.instances, base.watcher_kb), (larger.instances, larger.watcher_kb)),
        )

    def renew_us(self, instances: float) -> float:
        """One renewal of a lease."""
        return self.renew[0] + self.renew[1] * instances

    def change_us(self, instances: float, watchers: float) -> float:
        """One change, until every watcher was sent it."""
        return self.change[0] + self.change[1] * instances + self.change[2] * watchers

    def watcher_kb(self, instances: float) -> float:
        """Memory of one watcher, after its snapshot."""
        return self.watcher_memory[0] + self.watcher_memory[1] * instances

    def snapshot_us(self, instances: float) -> float:
        """One watcher that comes."""
        return self.snapshot[0] + self.snapshot[1] * instances


@dataclass(frozen=True, slots=True)
class DirectoryCosts:
    """Microseconds in a process that knows so many instances of a name."""

    choose: tuple[float, float]
    change: tuple[float, float]
    assign: tuple[float, float]

    @staticmethod
    def of(figures: Sequence[DirectoryFigures]) -> DirectoryCosts:
        """Through the smallest and the largest."""
        first, last = figures[0], figures[-1]
        return DirectoryCosts(
            _line((first.instances, first.choose_us), (last.instances, last.choose_us)),
            _line((first.instances, first.change_us), (last.instances, last.change_us)),
            _line((first.instances, first.assign_us), (last.instances, last.assign_us)),
        )

    def choose_us(self, instances: float) -> float:
        """To choose the instance of one call; nothing is chosen of one."""
        return 0.0 if instances <= 1 else max(0.0, self.choose[0] + self.choose[1] * instances)

    def change_us(self, instances: float) -> float:
        """To take in one change."""
        return max(0.0, self.change[0] + self.change[1] * instances)

    def assign_us(self, agents: float) -> float:
        """To find the least busy agent."""
        return 0.0 if agents <= 1 else max(0.0, self.assign[0] + self.assign[1] * agents)


@dataclass(frozen=True, slots=True)
class FanoutCosts:
    """Microseconds of a call between two processes, both sides: of its own, and of a message that
    it shares with others.
    """

    call: float
    message: float
    peer_kb: float

    @staticmethod
    def of(figures: Sequence[FanoutFigures]) -> FanoutCosts:
        """Through the fewest and the most peers."""
        first, last = figures[0], figures[-1]
        shares = [
            1 / calls_per_message(one.peers, one.calls_per_s, IN_FLIGHT) for one in (first, last)
        ]
        own, message = _line((shares[0], first.call_us), (shares[1], last.call_us))
        return FanoutCosts(own, message, last.peer_kb)

    def call_us(self, peers: float, calls_per_s: float, in_flight: float) -> float:
        """A call of a process that has so many peers, makes so many calls a second, and waits for
        so many at a time.
        """
        return self.call + self.message / calls_per_message(peers, calls_per_s, in_flight)


def calls_per_message(peers: float, calls_per_s: float, in_flight: float) -> float:
    """How many calls of one process share a message, when they go to so many peers in turn: the
    one that opens it, and those that come while it waits.
    """
    wait_s = min(_LONGEST_WAIT_S, _WAIT_PER_CALL_S * in_flight)
    return 1 + calls_per_s * wait_s / peers


def _line(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Where the line through two points is at 0, and how steep it is, never falling."""
    steep = max(0.0, (other[1] - one[1]) / (other[0] - one[0]))
    return one[1] - steep * one[0], steep


def _plane(
    base: RegistryFigures, larger: RegistryFigures, watched: RegistryFigures
) -> tuple[float, float, float]:
    _, instance = _line((base.instances, base.change_us), (larger.instances, larger.change_us))
    _, watcher = _line((base.watchers, base.change_us), (watched.watchers, watched.change_us))
    return base.change_us - instance * base.instances - watcher * base.watchers, instance, watcher
