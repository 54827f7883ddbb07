"""No sandbox: the program as a subprocess of asyncio, which starts it without a fork."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE

from tests.scale.rollout_bench import talk
from tests.scale.sandbox_bench import work


class NoSandboxes:
    """See Sandboxes."""

    async def make(self) -> None:
        return None

    async def run(self, sandbox: None) -> None:
        process = await asyncio.create_subprocess_exec(
            work.PROGRAM, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{work.PROGRAM} ended with {process.returncode}")

    async def end(self, sandbox: None) -> None:
        return None


if __name__ == "__main__":
    asyncio.run(work.answer(talk.take_stdout(), {}, NoSandboxes()))
