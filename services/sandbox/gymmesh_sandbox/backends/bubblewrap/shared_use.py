"""A sandbox is used by many calls at a time, or replaced by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class SharedUse:
    """Lets many in together, or one alone; who waits to be alone goes before later ones."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._users = 0
        self._alone = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[None]:
        """With others."""
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
        """Alone."""
        async with self._alone:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._users)
            yield
