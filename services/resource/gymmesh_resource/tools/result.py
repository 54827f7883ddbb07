"""What a tool may return beyond its answer: a reward, the end of the episode, an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer that has its own reward, ends the episode or reports an error.

    output: what the model sees, of any type that a tool may return.
    reward: the call's reward, if any; it counts like a turn's (see `Environment.reward_rule`).
    done: this call ends the episode, like `session.finish()`.
    error: the answer reports an error to the model, as a `ToolError` does; unlike a `ToolError` it
        may have a reward.
    """

    output: Any
    reward: float | None = None
    done: bool = False
    error: bool = False
