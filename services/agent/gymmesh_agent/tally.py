"""The counts of an attempt so far. Pure."""

from __future__ import annotations

import msgspec

from gymmesh.rollout.v1 import rollout_pb2

# An endpoint may report any number of tokens; the contract has an int64 for their sum.
_MOST_TOKENS = 2**63 - 1
_LEAST_TOKENS = -(2**63)


class AttemptTally(msgspec.Struct):
    """The counts of an attempt so far: the fields of `Counts`, and the time by stage.

    Attributes:
        model_us, tool_us, turn_us: microseconds of model calls (including waits for a place), of
            tool calls, and of the environment's turns. Concurrent calls are counted separately.
        model_queue_us: the part of `model_us` that was waiting for a place.
    """

    model_calls: int = 0
    tool_calls: int = 0
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model_us: int = 0
    model_queue_us: int = 0
    tool_us: int = 0
    turn_us: int = 0

    def counts(self) -> rollout_pb2.Counts:
        """The counts as the contract's message."""
        return rollout_pb2.Counts(
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            turns=self.turns,
            input_tokens=_as_int64(self.input_tokens),
            output_tokens=_as_int64(self.output_tokens),
        )

    def stages(self) -> dict[str, float]:
        """Seconds by the stage of the metric gymmesh_rollout_stage_seconds."""
        return {
            "model_queue": self.model_queue_us / 1e6,
            "model": (self.model_us - self.model_queue_us) / 1e6,
            "call_tool": self.tool_us / 1e6,
            "next_turn": self.turn_us / 1e6,
        }


def _as_int64(tokens: int) -> int:
    return max(_LEAST_TOKENS, min(tokens, _MOST_TOKENS))
