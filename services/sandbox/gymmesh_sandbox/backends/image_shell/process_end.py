"""What the exit code of a program in a sandbox means. Pure."""

from __future__ import annotations

import asyncio
from typing import Final

from gymmesh_sandbox.backends.base import ProcessEnded

#: A shell's exit code for a program that a signal ended, less the signal's number.
BY_SIGNAL: Final = 128
_LARGEST_SIGNAL: Final = 64


def ended_with(code: int) -> ProcessEnded:
    """How a program ended, by the exit code that a shell or a daemon reports: on its own, or by
    a signal.
    """
    number = code - BY_SIGNAL
    if 0 < number <= _LARGEST_SIGNAL:
        return ProcessEnded(signal=number)
    return ProcessEnded(exit_code=code)


def seen(ended: asyncio.Future[ProcessEnded]) -> None:
    """Retrieves an error that `RunningProcess.wait` also raises, if a caller waits."""
    if not ended.cancelled():
        ended.exception()
