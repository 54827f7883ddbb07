"""What is fuzzed: one face of a mesh."""

from __future__ import annotations

from random import Random
from typing import Protocol

from tests.fuzz.values import Values, Words


class Target(Protocol):
    """A face of a mesh, open for cases. A case is the same for the same seed and number, but for
    ids that the services choose (of sessions, runs, leases).
    """

    name: str

    async def open(self) -> None:
        """Finds out what its callers know."""

    async def close(self) -> None:
        """Hangs up."""

    async def run(self, seed: int, case: int) -> list[str]:
        """Sends one case; what is wrong with what came."""

    async def after(self) -> list[str]:
        """What is wrong once all is over, beside what is looked at for every target."""


def values_of(name: str, seed: int, case: int, words: Words | None = None) -> Values:
    """The random values of one case."""
    return Values(Random(f"{name}:{seed}:{case}"), words)
