"""Writing to a process that may have ended."""

from __future__ import annotations

import asyncio


def write_to(pipe: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a process's input. Raises BrokenPipeError where it is known to have ended.

    That is what uvloop says by a RuntimeError; asyncio's own loop drops what is written then.
    """
    try:
        pipe.write(data)
    except RuntimeError as error:
        raise BrokenPipeError(str(error)) from None
