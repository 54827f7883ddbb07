"""Functions for worker processes, and an environment that hands its heavy work to them."""

from __future__ import annotations

import os
import time

from gymmesh_resource import Environment, Rollout, Session, tool


def squares(count: int) -> tuple[int, int]:
    """A sum, and the process that it was made in."""
    return sum(number * number for number in range(count)), os.getpid()


def sleep_for_ever() -> None:
    while True:
        time.sleep(1)


def broken() -> None:
    raise LookupError("of the worker's")


class Heavy(Environment[None]):
    """Counts in other processes."""

    reward_range = (0.0, 5.0)

    @tool
    async def count(self, to: int) -> list[int]:
        """Count."""
        return list(await self.in_process(squares, to))

    @tool
    async def hang(self) -> None:
        """Never answer."""
        await self.in_process(sleep_for_ever, timeout_s=0.2)

    @tool
    async def fail(self) -> str:
        """Fail in the worker."""
        try:
            await self.in_process(broken)
        except LookupError as error:
            return f"raised {error}"
        return "nothing"

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        if rollout.task.payload.get("hang"):
            await self.in_process(sleep_for_ever, timeout_s=0.2)
        return float((await self.in_process(squares, 3))[0])
