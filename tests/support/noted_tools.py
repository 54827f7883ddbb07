"""An environment that notes on disk each call of its tool, and when sessions open and close.

The folder has a file for each process: a line for what happened, the rollout and what was asked.
A rollout completes with reward 1 where its session saw each call once, in order.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gymmesh_resource import Environment, Rollout, Session, Task, tool

CALLS: Final = ("first", "second")


class NotedTools(Environment[list[str]]):
    """A notebook with one tool, into whose session the policy writes CALLS."""

    # A call that came to a session of another instance would find nothing there.
    verify_needs_session = True

    def __init__(self, folder: str) -> None:
        self._file = Path(folder) / f"calls-{os.getpid()}"

    async def create_state(self, task: Task, seed: int) -> list[str]:
        return []

    @tool
    def write(self, session: Session[list[str]], word: str) -> str:
        """Write a word into the notebook."""
        with self._file.open("a") as file:
            file.write(f"{session.rollout_id} {word}\n")
        session.state.append(word)
        return f"{len(session.state)} words"

    def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return float(tuple(session.state) == CALLS)


def calls_in(folder: Path) -> Counter[tuple[str, str]]:
    """How often the tool was called, by rollout and word."""
    return Counter(_calls(folder))


def _calls(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.glob("calls-*"):
        for line in path.read_text().splitlines():
            rollout_id, _, word = line.partition(" ")
            yield rollout_id, word
