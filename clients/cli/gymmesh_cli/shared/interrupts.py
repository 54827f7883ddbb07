"""Ctrl-C and SIGTERM, in a command's event loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


def on_interrupt(do: Callable[[], object]) -> None:
    """Call this on Ctrl-C and SIGTERM from now on."""
    for number in _NUMBERS:
        asyncio.get_running_loop().add_signal_handler(number, do)


@contextmanager
def interrupting(do: Callable[[], object]) -> Iterator[None]:
    """Call this on Ctrl-C and SIGTERM meanwhile."""
    on_interrupt(do)
    try:
        yield
    finally:
        for number in _NUMBERS:
            asyncio.get_running_loop().remove_signal_handler(number)
