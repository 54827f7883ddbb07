"""Sessions of random programs: each has habits and takes random steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.capture_law.beginnings import Beginnings
from tests.capture_law.checks import WrongPlace
from tests.capture_law.conversation import Conversation
from tests.capture_law.program import RandomProgram
from tests.capture_law.rewrites import Rewrites
from tests.capture_law.turns import Turns


@dataclass
class Tally:
    """What many sessions came to.

    Attributes:
        links: how many calls had each.
        wrong: for each session in which the tree was wrong what it said, and the session's log.
    """

    sessions: int = 0
    links: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Those of more sessions."""
        self.sessions += other.sessions
        self.links += other.links
        self.wrong += other.wrong


def run_sessions(seed: str, count: int, steps: int = 14) -> Tally:
    """Run sessions; one ends with the first thing that the tree is wrong about."""
    tally = Tally()
    for number in range(count):
        program = RandomProgram(Random(f"{seed}/{number}"), tally.links)
        tally.sessions += 1
        try:
            run_session(program, steps)
        except WrongPlace as wrong:
            lines = [f"session {seed}/{number}: {wrong}", str(program.habits), *program.log]
            tally.wrong.append("\n".join(lines))
        except Exception as error:
            error.add_note(f"session {seed}/{number}: {program.habits}")
            raise
    return tally


def run_session(program: RandomProgram, steps: int) -> None:
    """Let a program take that many steps. Raises WrongPlace."""
    turns, rewrites, beginnings = Turns(program), Rewrites(program), Beginnings(program)
    beginnings.begin()
    actions: list[tuple[int, Callable[[Conversation], None]]] = [
        (30, turns.step),
        (4, turns.branch),
        (3, turns.resample),
        (2, turns.ask_twice),
        (4, turns.retry),
        (2, turns.give_up),
        (3, rewrites.drop),
        (3, rewrites.keep_fragment),
        (3, rewrites.edit_input),
        (2, rewrites.quote),
        (3, rewrites.edit_answer),
        (2, rewrites.drop_call),
        (2, rewrites.change_preamble),
        (2, rewrites.write_answer),
        (4, beginnings.ask_beside),
        (4, beginnings.compact),
        (5, beginnings.start_sub_agent),
        (2, turns.fail),
        (3, turns.ask_only),
        (2, lambda _: beginnings.begin()),
    ]
    weights, doers = zip(*actions, strict=True)
    for _ in range(steps):
        conversation = program.rng.choice(program.conversations)
        if conversation.waiting is not None:
            program.receive(conversation)
        else:
            program.rng.choices(doers, weights)[0](conversation)
