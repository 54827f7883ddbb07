"""Unpredictable bytes of the system's, drawn many at a time.

Thousands of sessions may open within a second; a system call for each of their ids and seeds is
seen to hold the event loop up for tenths of a second on a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_AT_ONCE: Final = 4096


class _Stock(Generic[T]):
    """Tokens that wait to be given out, by their count of bytes.

    Threads may take from it at a time: `pop` gives each of them another one.
    """

    def __init__(self, form: Callable[[bytes], T]) -> None:
        self._form = form
        self._waiting: dict[int, list[T]] = {}
        # A forked process draws its own.
        os.register_at_fork(after_in_child=self._waiting.clear)

    def take(self, count: int) -> T:
        """One of so many bytes, at least one."""
        try:
            return self._waiting[count].pop()
        except LookupError:  # none of them was drawn, or all were given out
            return self._draw(count)

    def _draw(self, count: int) -> T:
        drawn = os.urandom(max(_AT_ONCE // count, 1) * count)
        tokens = [self._form(drawn[at : at + count]) for at in range(0, len(drawn), count)]
        taken = tokens.pop()
        self._waiting[count] = tokens
        return taken


_bytes: Final = _Stock(bytes)
_texts: Final = _Stock(bytes.hex)


def token_bytes(count: int) -> bytes:
    """So many bytes, as `secrets.token_bytes` gives them; none is given twice."""
    return _bytes.take(count)


def token_hex(count: int) -> str:
    """So many bytes in hexadecimal digits, as `secrets.token_hex` gives them."""
    return _texts.take(count)
