"""What a tool may return where its answer alone does not say enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer with a reward of its own, or one that ends the episode.

    output: what the model is shown, as any tool returns it.
    reward: the call's reward, if any; it counts as a turn's (see `Environment.reward_rule`).
    done: the episode is over with this call, as after `session.finish()`.
    error: the answer reports an error to the model, as a `ToolError` does, which has no reward.
    """

    output: Any
    reward: float | None = None
    done: bool = False
    error: bool = False
