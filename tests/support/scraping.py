"""What a process counts, as differences: all tests of a process share its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from gymmesh_runtime import metrics


def samples() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample there is, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in metrics.REGISTRY.collect()
        for sample in family.samples
    }


class Counted:
    """What has been counted since it was made."""

    def __init__(self) -> None:
        self._before = samples()

    def of(self, name: str, **labels: str) -> float:
        """By how much the samples of that name grew together that have these labels."""
        wanted = labels.items()
        return sum(
            value - self._before.get(key, 0.0)
            for key, value in samples().items()
            if key[0] == name and wanted <= dict(key[1]).items()
        )

    def by(self, name: str, label: str, **labels: str) -> Mapping[str, float]:
        """The same by the values of a label, where it is not 0."""
        values = {dict(key[1]).get(label, "") for key in samples() if key[0] == name}
        grown = {value: self.of(name, **{**labels, label: value}) for value in values}
        return {value: count for value, count in grown.items() if count}
