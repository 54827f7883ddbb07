"""Logs that stay readable when everything fails alike: one traceback each, and no secrets.

`OneOfEach` lets a record through once, and again when it came 10, 100, 1000 … times; `Concealing`
masks secrets. Whoever sets up logging (a command, a worker process) puts them on its handlers.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections import OrderedDict
from typing import Any, Final

from gymmesh_runtime.conceal import conceal
from gymmesh_runtime.plain_text import PlainFormatter

__all__ = ["FORMAT", "Concealing", "OneOfEach"]

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_KINDS: Final = 2000


class Concealing(PlainFormatter):
    """Formats a record as plain text, with `***` for each secret."""

    def __init__(self, fmt: str = FORMAT) -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        return conceal(super().format(record))


class OneOfEach(logging.Filter):
    """Passes one record of each kind, and counts the others.

    Records with a traceback are of one kind when the exceptions are of one type and from one
    place, others when they say the same. A later one that passes has the count and no traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: OrderedDict[Any, tuple[int, str]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        count, said = self._counts.get(kind, (0, ""))
        count += 1
        self._counts[kind] = (count, said or record.getMessage())
        self._counts.move_to_end(kind)
        if len(self._counts) > _MOST_KINDS:
            self._counts.popitem(last=False)
        if count == 1:
            return True
        if count < 10 or not math.log10(count).is_integer():
            return False
        record.msg, record.args = f"{record.getMessage()} ({count} times so far)", ()
        record.exc_info = record.exc_text = None
        return True

    def repeated(self) -> list[tuple[int, str]]:
        """How often each kind came that came more than once, and what its first record said."""
        return [(count, said) for count, said in self._counts.values() if count > 1]


def _kind(record: logging.LogRecord) -> Any:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.name, record.getMessage()
    places: list[tuple[type, str, int]] = []
    at: BaseException | None = error
    while at is not None and len(places) < 200:
        places += [
            (type(at), frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(at.__traceback__)
        ]
        at = at.__cause__
    return record.name, type(error), tuple(places)
