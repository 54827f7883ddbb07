"""Several collectors on one mesh: what each process costs, and which of them is full first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.scale.scaling.measure_collectors import CollectorFigures

COLLECTOR: Final = "collector"


@dataclass(frozen=True, slots=True)
class Shared:
    """Costs of a rollout by process, in microseconds of CPU time; those of all collectors are one.

    Attributes:
        processors: of the machine, for all of them.
    """

    cpu_us: dict[str, float]
    processors: float

    @staticmethod
    def of(one: CollectorFigures) -> Shared:
        """What one collector alone showed; the machine had as many processors as were busy."""
        return Shared(one.cpu_us, sum(one.cpu_us.values()) * one.per_s / 1e6)

    def per_s(self, collectors: int) -> float:
        """Rollouts a second that all collectors get together."""
        alone = [us for name, us in self.cpu_us.items() if name != COLLECTOR]
        bounds = [collectors / self.cpu_us[COLLECTOR], 1 / max(alone)]
        bounds.append(self.processors / sum(self.cpu_us.values()))
        return min(bounds) * 1e6

    def each_per_s(self, collectors: int) -> float:
        """What one of them gets: a mesh gives its places to the one that has the fewest."""
        return self.per_s(collectors) / collectors
