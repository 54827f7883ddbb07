"""The minimal environment once more, written with gymmesh_resource: the same profile fits both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gymmesh_resource import (
    Environment,
    Member,
    Outcome,
    Rollout,
    Session,
    Task,
    ToolError,
    Transcript,
    Turn,
    tool,
)

_COUNTRIES = {"France": "Paris", "Peru": "Lima", "Kenya": "Nairobi"}


@dataclass
class Game:
    """What one session knows."""

    letters: int = 0
    guesses: int = 0
    falls: int = 0


class Capitals(Environment[Game]):
    """Guess the capital of a country."""

    state: ClassVar[Any] = Game
    verify_needs_session = False
    in_order = False

    def check_task(self, task: Task) -> None:
        task.require("country", str)
        task.require("capital", str)

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        for country, capital in _COUNTRIES.items():
            content = f"What is the capital of {country}?"
            params = {"input": [{"role": "user", "content": content}]}
            row = {"responses_create_params": params, "task_id": country.lower()}
            yield {**row, "country": country, "capital": capital}

    @tool
    async def hint(self, session: Session[Game], country: str) -> str:
        """Tell one more letter of the capital."""
        if country != session.task.payload["country"]:
            raise ToolError(f"Nobody asked for {country!r}.")
        session.state.letters += 1
        return f"It begins with {_capital(session.task)[: session.state.letters]}"

    @tool
    async def stumble(self, session: Session[Game], over: str) -> str:
        """Fail, as an environment may."""
        session.state.falls += 1
        raise RuntimeError(f"fall {session.state.falls} over {over}")

    @tool
    async def wait(self, seconds: float) -> str:
        """Wait that many seconds."""
        await asyncio.sleep(seconds)
        return "waited"

    async def verify(self, session: Session[Game], rollout: Rollout) -> Outcome:
        return float(_capital(rollout.task) in rollout.answer)


class CapitalsInTurns(Capitals):
    """The same, with an environment that answers each guess."""

    async def next_turn(self, session: Session[Game], new: Transcript) -> Turn:
        if _capital(session.task) in new.answer:
            return Turn(reward=1.0, done=True)
        return Turn("No. Guess again.", reward=0.0)


class CapitalsJudged(CapitalsInTurns):
    """The same, where tasks that say `judged` have each guess read by a model."""

    models = ("judge",)

    async def next_turn(self, session: Session[Game], new: Transcript) -> Turn:
        await session.ask("judge", f"A guess: {new.answer}")
        if not new.answer:
            raise RuntimeError("silence")
        return await super().next_turn(session, new)

    async def verify(self, session: Session[Game], rollout: Rollout) -> Outcome:
        await rollout.ask("judge", f"A guess: {rollout.answer}")
        if not rollout.answer:
            raise RuntimeError("silence")
        return await super().verify(session, rollout)


class CapitalsTogether(Environment[None]):
    """The same, judged over the repeats."""

    def check_task(self, task: Task) -> None:
        task.require("country", str)
        task.require("capital", str)

    async def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
        return [float(_capital(task) in member.rollout.answer) for member in members]


def _capital(task: Task) -> str:
    return str(task.payload["capital"])
