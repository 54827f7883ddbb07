"""The versions of the policy's weights, and what is too old to train on. Pure."""

from __future__ import annotations

from collections.abc import Collection


class WeightsVersions:
    """The versions that a collector knows.

    Versions of a rollout may hold None: it has tokens that were sampled before any version was
    announced. These count as of the version before the first one that is known.

    Attributes:
        announced: the version that the trainer announced last; None: none.
        adapter: the adapter's name that was announced with it; empty: none.
        newest: the newest version that was announced or seen in rollouts; None: none.
        first: the oldest of these; None: none.
        max_staleness: versions that a rollout's oldest weights may be behind; None: any.
    """

    def __init__(self, max_staleness: int | None) -> None:
        self.announced: int | None = None
        self.adapter = ""
        self.newest: int | None = None
        self.first: int | None = None
        self.max_staleness = max_staleness

    def announce(self, version: int, adapter: str = "") -> None:
        """The weights are at this version now."""
        self.announced = version
        self.adapter = adapter
        self.see(version)

    def see(self, version: int) -> None:
        """A rollout has tokens of this version."""
        self.newest = version if self.newest is None else max(self.newest, version)
        self.first = version if self.first is None else min(self.first, version)

    def restore(
        self, announced: int | None, newest: int | None, first: int | None, adapter: str = ""
    ) -> None:
        """Know what a saved state knew."""
        self.adapter = adapter
        self.announced, self.newest = announced, newest
        self.first = newest if first is None else first

    def staleness(self, versions: Collection[int | None]) -> int:
        """How many versions the oldest of these is behind the newest; 0 where none is known."""
        if self.newest is None or self.first is None or not versions:
            return 0
        before = self.first - 1
        return self.newest - min(before if one is None else one for one in versions)

    def is_stale(self, versions: Collection[int | None]) -> bool:
        """Whether that is more than `max_staleness`."""
        return self.max_staleness is not None and self.staleness(versions) > self.max_staleness

    def replaces(self, versions: Collection[int | None]) -> bool:
        """Whether a stored group of these versions is collected anew: it is stale, or newer than
        the weights that the trainer announced, as after a return to an older checkpoint.
        """
        newest = max((one for one in versions if one is not None), default=0)
        newer = self.announced is not None and newest > self.announced
        return newer or self.is_stale(versions)
