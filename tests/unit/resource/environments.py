"""Environments for the tests, each of which shows one thing."""

from __future__ import annotations

import asyncio
import fractions
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import (
    Component,
    Environment,
    Member,
    Outcome,
    Rollout,
    Session,
    Skipped,
    Task,
    TaskInvalid,
    ToolError,
    Transcript,
    Turn,
    Verdict,
    tool,
)
from gymmesh_resource.environment import Said
from gymmesh_responses import new_message


@dataclass
class Notes:
    """State that a test looks at."""

    lines: list[str] = field(default_factory=list)
    runs: int = 0


class Panic(BaseException):
    """No Exception."""


class Notebook(Environment[Notes]):
    """Keeps notes."""

    state = Notes

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.created = 0
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.order: list[str] = []

    def check_task(self, task: Task) -> None:
        if "forbidden" in task.payload:
            raise TaskInvalid("forbidden", "must not be there")

    async def create_state(self, task: Task, seed: int) -> Notes:
        self.created += 1
        await asyncio.sleep(0)  # so that two at the same time would meet
        if task.payload.get("fault"):
            raise RuntimeError("secret detail")
        return Notes()

    async def close_session(self, session: Session[Notes]) -> None:
        self.closed.append(session.id)

    @tool
    async def note(self, session: Session[Notes], line: str) -> list[str]:
        """Write a line; gives all lines."""
        session.state.lines.append(line)
        return session.state.lines

    @tool
    async def wait(self, session: Session[Notes]) -> str:
        """Wait for the gate."""
        session.state.runs += 1
        self.started.set()
        await self.gate.wait()
        return f"run {session.state.runs}"

    @tool
    async def slow_then_fast(self, session: Session[Notes], name: str, ticks: int) -> str:
        """Take some turns of the event loop."""
        for _ in range(ticks):
            await asyncio.sleep(0)
        self.order.append(name)
        return name

    @tool
    async def refuse(self) -> str:
        """Always refuse."""
        raise ToolError("Ask for something else.")

    @tool
    def broken(self) -> str:
        """Always break."""
        raise ValueError("secret detail")

    @tool
    def exits(self) -> str:
        """Call sys.exit."""
        raise SystemExit(3)

    @tool
    async def panics(self) -> str:
        """Raise what is no Exception, as extensions written in Rust do."""
        raise Panic("the rope is cut")

    @tool
    def panics_in_a_thread(self) -> str:
        """The same, in a thread."""
        raise Panic("the rope is cut")

    @tool
    async def unsayable(self) -> float:
        """Answer what JSON cannot hold."""
        return math.nan

    @tool
    async def nothing(self) -> None:
        """Answer nothing."""

    @tool
    async def picture(self) -> responses_pb2.ContentParts:
        """Answer with parts."""
        part = responses_pb2.ContentPart(input_text=responses_pb2.InputText(text="seen"))
        return responses_pb2.ContentParts(parts=[part])

    @tool
    async def finish(self, session: Session[Notes]) -> str:
        """End the episode."""
        session.finish()
        return "over"

    @tool
    async def luck(self, session: Session[Notes]) -> int:
        """Draw a number."""
        return session.random.randrange(10**9)

    async def verify(self, session: Session[Notes], rollout: Rollout) -> float:
        return len(session.state.lines) / 10


class Blocking(Environment[None]):
    """A tool that blocks its thread until another session's call lets it go."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.order: list[str] = []

    @tool
    def block(self) -> str:
        """Block until released, for ten seconds at most."""
        released = self.released.wait(10)
        self.order.append("blocked")
        return f"released: {released}"

    @tool
    async def release(self) -> str:
        """Let the blocked go."""
        self.order.append("released")
        self.released.set()
        return "ok"

    @tool
    async def hang(self) -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return ""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


class Judge(Environment[None]):
    """A verifier that does what its task says."""

    async def verify(self, session: Session[None], rollout: Rollout) -> Outcome:
        kind = rollout.task.payload["kind"]
        if kind == "raise":
            raise ZeroDivisionError("secret detail")
        if kind == "hang":
            await asyncio.Event().wait()
        if kind == "timeout":
            raise TimeoutError("the worker took too long")
        if kind == "skip":
            return Skipped("no key\nfor this one", {"seen": True})
        if kind == "weighted":
            with rollout.stage("format") as stage:
                stage.note = "fine"
            parts = {"format": Component(1.0, 0.25), "right": Component(0.5, 0.5)}
            return Verdict.weighted(parts, {"answer": rollout.answer})
        values: dict[str, Any] = {
            "nan": math.nan,
            "inf": -math.inf,
            "none": None,
            "text": "1.0",
            "huge": 10**400,
            "bad_component": Verdict(1.0, {"c": math.inf}),
            "bad_evidence": Verdict(1.0, evidence={"c": object()}),
            "true": True,
            "whole": 1,
            "two": 2.0,
            "minus": -1,
            "fraction": fractions.Fraction(1, 2),
            "rounding": 1.0000000000000002,
            "rounded_up": 1.00001,
            "verdict_two": Verdict(2.0),
            "true_component": Verdict(1.0, {"c": True}),
            "list_evidence": Verdict(1.0, evidence=[1]),  # type: ignore[arg-type]
            "text_component": Verdict(1.0, {"c": "1"}),  # type: ignore[dict-item]
        }
        return values[kind]  # type: ignore[no-any-return]


class Game(Environment[list[int]]):
    """Counts down from a number drawn by the session's chance."""

    state = list
    in_order = True

    def opening(self, session: Session[list[int]]) -> str:
        session.state.append(3)
        return "Three turns."

    def next_turn(self, session: Session[list[int]], new: Transcript) -> Turn:
        session.state.append(session.state[-1] - 1)
        left = session.state[-1]
        said: list[Said] = [new_message("user", f"you said {new.answer!r}"), f"{left} left"]
        return Turn(said, reward=0.5, done=left == 0)

    def verify(self, session: Session[list[int]], rollout: Rollout) -> float:
        return sum(rollout.turn_rewards)


class Ranked(Environment[None]):
    """Judges the repeats of a task by the length of their answers."""

    def verify_group(self, task: Task, members: Sequence[Member]) -> Sequence[Outcome]:
        if task.payload.get("short"):
            return [1.0]
        longest = max(len(member.rollout.answer) for member in members)
        return [float(len(member.rollout.answer) == longest) for member in members]
