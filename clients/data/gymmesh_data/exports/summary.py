"""The options of an export, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_data.pairs import PairRules
from gymmesh_data.selection import Selection


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How rollouts are chosen and written.

    Attributes:
        selection: which rollouts are exported.
        pairs: which rollouts form a pair, for formats of pairs.
        reasoning: whether to export reasoning.
        tokens: whether to export token ids in formats that can store token ids beside text.
        agent: the agent's name in records of tasks; empty: the format's default.
        part: only tasks whose share (see `share_of`) is at least the first number and below the
            second; None: all.
    """

    selection: Selection = field(default_factory=Selection)
    pairs: PairRules = field(default_factory=PairRules)
    reasoning: bool = True
    tokens: bool = True
    agent: str = ""
    part: tuple[float, float] | None = None


_COUNTERS: Final = ("left_out", "losses", "changed", "environments", "models")


@dataclass(slots=True)
class ExportSummary:
    """The result of an export: how many rollouts were read, and how many records written.

    Attributes:
        left_out: number of skipped rollouts (for pairs: pairs), by reason.
        losses: number of elements of exported rollouts that the format can't represent, by kind.
        changed: number of elements of the records that the format has in another form, by kind.
        environments, models: number of exported rollouts by name; models only if the format reads
            them.
    """

    rollouts: int = 0
    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    environments: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of_dict(cls, said: Mapping[str, Any]) -> ExportSummary:
        """What `to_dict` made. Raises KeyError, TypeError."""
        counts = (Counter(said.get(key, {})) for key in _COUNTERS)  # an earlier version has fewer
        return cls(said["rollouts"], said["records"], *counts)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rollouts": self.rollouts,
            "records": self.records,
            **{key: dict(sorted(getattr(self, key).items())) for key in _COUNTERS},
        }
