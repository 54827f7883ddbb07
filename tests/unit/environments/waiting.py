"""Waits for what a server has seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Far more than it takes: for a busy machine.
_BOUND_S: Final = 60.0


async def until(holds: Callable[[], object]) -> None:
    """Return once something holds. Raises TimeoutError."""
    async with asyncio.timeout(_BOUND_S):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)
