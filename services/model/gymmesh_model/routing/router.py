"""Which of several endpoints a call goes to: a pure decision.

A model's server keeps the prefixes of the conversations that it has answered. So a rollout's calls
should go to the endpoint that answered the rollout's earlier calls. The rules:

- a rollout's home is the endpoint that ranks first for its id by rendezvous hashing (Thaler and
  Ravishankar, 1996): every model service finds the same one without asking, and an endpoint that
  comes or goes moves no other endpoint's rollouts;
- the call goes home, unless home is barred (its circuit is open, or it has just failed this very
  call) or more than `margin` calls busier than the least busy one;
- otherwise the call goes to the first endpoint in the rollout's own ranking that is neither barred
  nor too busy;
- the endpoint that answered a call is the rollout's home from then on: it has the prefix, and at
  any other endpoint the prefix would be computed again. Moved homes are remembered for the
  `remembered` rollouts last seen. A forgotten rollout uses its ranking again, which costs one
  computation of the prefix.

A call without a rollout goes to the least busy endpoint.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

_RANKINGS_KEPT: Final = 16_384


def ranking(key: str, names: Sequence[str]) -> tuple[int, ...]:
    """The places of `names` in the order in which `key` prefers them."""
    seed = key.encode("utf-8", "surrogatepass")

    def weight(place: int) -> bytes:
        name = names[place].encode("utf-8", "surrogatepass")
        return hashlib.blake2b(name + b"\0" + seed, digest_size=8).digest()

    return tuple(sorted(range(len(names)), key=weight, reverse=True))


class Router:
    """Chooses among endpoints, which it knows by their place in `names`.

    names: what identifies each, the same in every process that routes to them. margin: how many
    calls busier than the least busy one a home may be. remembered: see above.
    """

    def __init__(self, names: Sequence[str], margin: float, *, remembered: int = 65_536) -> None:
        self._size = len(names)
        self._margin = margin
        self._remembered = remembered
        self._moved: OrderedDict[str, int] = OrderedDict()
        self._next = 0
        fixed = tuple(names)
        self._ranking = lru_cache(maxsize=_RANKINGS_KEPT)(lambda key: ranking(key, fixed))

    def home(self, key: str) -> int:
        """Where the calls of the rollout `key` belong at present."""
        moved = self._moved.get(key)
        return self._ranking(key)[0] if moved is None else moved

    def choose(self, key: str, loads: Sequence[float], barred: Collection[int] = ()) -> int | None:
        """The place of the endpoint for the next call of the rollout `key`.

        loads: how busy each endpoint is, in calls. barred: places that cannot be used. None:
        all are barred.
        """
        usable = [place for place in range(self._size) if place not in barred]
        if not usable:
            return None
        least = min(loads[place] for place in usable)
        if not key:
            # One of the equally idle, each in its turn.
            equals = [place for place in usable if loads[place] <= least]
            chosen = next((place for place in equals if place >= self._next), equals[0])
            self._next = (chosen + 1) % self._size
            return chosen
        most = least + self._margin
        # The least busy one is never too busy.
        order = (self.home(key), *self._ranking(key))
        return next(place for place in order if place not in barred and loads[place] <= most)

    def answered(self, key: str, place: int) -> None:
        """The rollout `key` has its prefix at `place` now."""
        if not key or self._size == 1:
            return
        if self._ranking(key)[0] == place:
            self._moved.pop(key, None)
            return
        self._moved[key] = place
        self._moved.move_to_end(key)
        if len(self._moved) > self._remembered:
            self._moved.popitem(last=False)
