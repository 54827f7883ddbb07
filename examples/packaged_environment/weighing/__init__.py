"""Finding the heavy coin with a balance."""

import re
from dataclasses import dataclass

from gymmesh import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict, tool

__all__ = ["Weighing"]


@dataclass
class Coins:
    """A session's coins, numbered from 1, and how often they were weighed."""

    count: int
    heavy: int
    weighings: int = 0


class Weighing(Environment[Coins]):
    """Find the one heavy coin with a balance."""

    version = "3"
    examples = "tasks.jsonl"

    def check_task(self, task: Task) -> None:
        """A task says how many coins there are, and how many weighings are allowed."""
        for key in ("coins", "weighings"):
            if task.require(key, int) < 1:
                raise TaskInvalid(key, "must be at least 1")

    def create_state(self, task: Task, seed: int) -> Coins:
        """Which coin is heavy is decided by the seed."""
        coins: int = task.payload["coins"]
        return Coins(coins, heavy=1 + seed % coins)

    @tool
    async def weigh(self, session: Session[Coins], left: list[int], right: list[int]) -> str:
        """Put coins on both sides of the balance.

        Args:
            left: the numbers of the coins on the left side
            right: the numbers of as many coins on the right side
        """
        coins = session.state
        if len(left) != len(right) or len({*left, *right}) != 2 * len(left):
            raise ToolError("Put as many coins on the right as on the left, each at most once.")
        if not all(1 <= coin <= coins.count for coin in [*left, *right]):
            raise ToolError(f"The coins are numbered from 1 to {coins.count}.")
        coins.weighings += 1
        if coins.heavy in left:
            return "The left side goes down."
        return "The right side goes down." if coins.heavy in right else "The sides are even."

    async def verify(self, session: Session[Coins], rollout: Rollout) -> Verdict:
        """The last number of the answer is the coin that was named."""
        coins = session.state
        numbers = re.findall(r"\d{1,6}", rollout.answer)
        found = bool(numbers) and int(numbers[-1]) == coins.heavy
        in_time = coins.weighings <= rollout.task.payload["weighings"]
        return Verdict(
            reward=float(found and in_time),
            components={"found": float(found), "in_time": float(in_time)},
            evidence={"heavy": coins.heavy, "weighings": coins.weighings},
        )
