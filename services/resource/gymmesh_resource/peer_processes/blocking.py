"""A process for a short time, for code that is not async: to list tasks, or to check options."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gymmesh_resource.peer_processes.peer_process import PeerOptions, PeerProcess

T = TypeVar("T")


def with_process(options: PeerOptions, work: Callable[[PeerProcess], Awaitable[T]]) -> T:
    """What `work` returns, with a process that is started for it and closed after it.

    Blocks as long as that takes. Raises `PeerFault`, and what `work` raises.
    """

    async def run() -> T:
        process = PeerProcess(options)
        await process.open()
        try:
            return await work(process)
        finally:
            await process.close()

    # A thread, as the caller's may run an event loop already.
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, run()).result()
