"""Ways to choose an endpoint, to compare with the router: each takes its place in a pool."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gymmesh_model.routing import Router


class RoundRobin(Router):
    """Each endpoint in its turn."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, 0)
        self._count = len(names)
        self._last = -1

    def choose(self, key: str, loads: Sequence[float], barred: Collection[int] = ()) -> int | None:
        for step in range(1, self._count + 1):
            place = (self._last + step) % self._count
            if place not in barred:
                self._last = place
                return place
        return None


class LeastLoaded(Router):
    """The least busy endpoint, whoever asks."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, 0)

    def choose(self, key: str, loads: Sequence[float], barred: Collection[int] = ()) -> int | None:
        return super().choose("", loads, barred)


class Forgetful(Router):
    """The router's law, but home is always the first of the ranking."""

    def answered(self, key: str, place: int) -> None:
        return


class HashOnly(Forgetful):
    """The first of the ranking that is up, however busy."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, float("inf"))


class IdleThenStay(Router):
    """At first the least busy, and then there for good; each rollout has to be remembered."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, float("inf"))
        self._homes: dict[str, int] = {}

    def choose(self, key: str, loads: Sequence[float], barred: Collection[int] = ()) -> int | None:
        home = self._homes.get(key)
        return super().choose("", loads, barred) if home is None or home in barred else home

    def answered(self, key: str, place: int) -> None:
        self._homes[key] = place
