"""A lock for a sandbox that many calls use at the same time, or one call alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class SharedUse:
    """Admits many callers together, or one alone. A caller that waits to be alone precedes later
    callers.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._users = 0
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[None]:
        """Use the sandbox together with others."""
        async with self._alone:
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._alone.locked():
                async with self._changed:
                    self._changed.notify_all()

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[None]:
        """Use the sandbox alone."""
        async with self._alone:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._users)
            yield
