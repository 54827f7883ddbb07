"""The request bodies that a gateway holds while they arrive and are read, limited for all
rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

#: What a rollout may hold however much the others do.
_LEAST_BYTES: Final = 1 << 17


class HeldBodies:
    """Counts the bytes of bodies.

    A rollout may hold as many bytes as are left for all other rollouts. So even if one rollout
    sends bodies that never end, or two or ten do, there is room for the next rollout.

    Args:
        most: the maximum bytes of all rollouts together, in addition to the minimum of each
            rollout.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._all = 0
        self._by_rollout: Counter[Hashable] = Counter()

    @contextmanager
    def holding(self, rollout: Hashable) -> Iterator[Callable[[int], bool]]:
        """A context for one body. It yields a function that counts further bytes of the body,
        and returns whether there is room for them.
        """
        held = 0

        def hold(count: int) -> bool:
            nonlocal held
            held += count
            self._all += count
            self._by_rollout[rollout] += count
            return self._by_rollout[rollout] <= max(_LEAST_BYTES, self._most - self._all)

        try:
            yield hold
        finally:
            self._all -= held
            self._by_rollout[rollout] -= held
            if not self._by_rollout[rollout]:
                del self._by_rollout[rollout]
