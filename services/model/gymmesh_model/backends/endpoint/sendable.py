"""A request's body while its answer is waited for, which thousands of calls may do at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHORT: Final = 4096
"""Up to here a body takes less memory than what it is made of."""


def sendable(make: Callable[[], bytes]) -> bytes | Sendable:
    """The body that `make` writes, for `HttpEndpoint.post`.

    A short one is kept, and what it is made of need not be; a long one is given up once it was
    sent. Raises what `make` raises.
    """
    body = make()
    return exactly(body) if len(body) <= SHORT else Sendable(make, body)


def exactly(written: bytes) -> bytes:
    """A copy without the room that the JSON writer's own buffer has besides."""
    return bytes(memoryview(written))


class Sendable:
    """A long body, written anew for each retry.

    Once sent it is given up: most are never sent again, and what it is made of is there anyway.
    """

    __slots__ = ("_first", "_make")

    def __init__(self, make: Callable[[], bytes], first: bytes | None = None) -> None:
        """first: what `make` gave, if it was called already; else what it raises is raised."""
        self._make = make
        self._first: bytes | None = make() if first is None else first

    def __call__(self) -> bytes:
        """The body, to be sent now."""
        first, self._first = self._first, None
        return self._make() if first is None else first
