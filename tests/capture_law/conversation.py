"""One history that a random program keeps."""

from __future__ import annotations

from dataclasses import dataclass

from tests.capture_law.truth import Segment, Thread, TrueCall

SYSTEMS = ("You are an agent.", "You are an agent. Today is Tuesday.")
TOOLS = (("shell",), ("shell", "edit"))


@dataclass(eq=False)
class Conversation:
    """One history that the program keeps.

    Attributes:
        asked: the segments of its last request.
        waiting: the call whose answer it waits for.
        last: the call whose answer is its last segment.
    """

    thread: Thread
    segments: tuple[Segment, ...] = ()
    system: str = SYSTEMS[0]
    tools: tuple[str, ...] = TOOLS[0]
    window: int | None = None
    asked: tuple[Segment, ...] = ()
    waiting: TrueCall | None = None
    last: TrueCall | None = None
