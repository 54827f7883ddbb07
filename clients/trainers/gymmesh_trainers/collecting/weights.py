"""The versions of the policy's weights, and what is too old to train on. Pure."""

from __future__ import annotations

from collections.abc import Collection


class WeightsVersions:
    """The versions that a collector knows.

    Attributes:
        announced: the version that the trainer announced last; None: none.
        newest: the newest version that was announced or seen in rollouts; None: none.
        max_staleness: versions that a rollout's oldest weights may be behind; None: any.
    """

    def __init__(self, max_staleness: int | None) -> None:
        self.announced: int | None = None
        self.newest: int | None = None
        self.max_staleness = max_staleness

    def announce(self, version: int) -> None:
        """The weights are at this version now."""
        self.announced = version
        self.see(version)

    def see(self, version: int) -> None:
        """A rollout has tokens of this version."""
        self.newest = version if self.newest is None else max(self.newest, version)

    def staleness(self, versions: Collection[int]) -> int:
        """How many versions the oldest of these is behind the newest; 0 where none is known."""
        oldest = min(versions, default=None)
        return 0 if oldest is None or self.newest is None else self.newest - oldest

    def is_stale(self, versions: Collection[int]) -> bool:
        """Whether that is more than `max_staleness`."""
        return self.max_staleness is not None and self.staleness(versions) > self.max_staleness

    def replaces(self, versions: Collection[int]) -> bool:
        """Whether a stored group of these versions is collected anew: it is stale, or newer than
        the weights that the trainer announced, as after a return to an older checkpoint.
        """
        newer = self.announced is not None and max(versions, default=0) > self.announced
        return newer or self.is_stale(versions)
