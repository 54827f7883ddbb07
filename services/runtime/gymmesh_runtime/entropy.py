"""Unpredictable bytes of the system's, drawn many at a time.

Thousands of sessions may open within a second; a system call for each of their ids and seeds is
seen to hold the event loop up for tenths of a second on a busy machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import unpack
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_AT_ONCE: Final = 4096


class _Stock(Generic[T]):
    """Tokens that wait to be given out, by their count of bytes.

    `divide` makes a list of tokens, each of so many bytes. Threads may take from it at a time:
    `pop` gives each of them another one.
    """

    def __init__(self, divide: Callable[[bytes, int], list[T]]) -> None:
        self._divide = divide
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
        tokens = self._divide(os.urandom(max(_AT_ONCE // count, 1) * count), count)
        taken = tokens.pop()
        self._waiting[count] = tokens
        return taken


def _texts_in(drawn: bytes, count: int) -> list[str]:
    return list(map(bytes.hex, unpack(f"{count}s" * (len(drawn) // count), drawn)))


def _numbers_in(drawn: bytes, count: int) -> list[int]:
    return [number >> 11 for number in unpack(f"{len(drawn) // count}Q", drawn)]


_texts: Final = _Stock(_texts_in)
_numbers: Final = _Stock(_numbers_in)


def token_hex(count: int) -> str:
    """So many bytes in hexadecimal digits, as `secrets.token_hex` gives them; none comes twice."""
    return _texts.take(count)


def token_number() -> int:
    """A number of 53 bits, as many as JSON readers keep, as `secrets.randbits` gives it."""
    return _numbers.take(8)
