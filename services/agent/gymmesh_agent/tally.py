"""What an attempt did so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gymmesh.rollout.v1 import rollout_pb2

# An endpoint may say any number of tokens; the contract has 63 bits for their sum.
_MOST_TOKENS = 2**63 - 1


# Numbers of Python's own, since a message's fields take several times as long to count up.
@dataclass(slots=True)
class Tally:
    """Counted up step by step: the fields of `Counts`, and where the time went.

    Attributes:
        model_us, tool_us, turn_us: microseconds that calls of models (waits for a place included),
            tools and the environment's turns took, each counted where some run side by side.
        model_queue_us: of those of models, the waits for a place.
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

    def write(self, counts: rollout_pb2.Counts) -> None:
        """Fill in an empty message."""
        counts.model_calls = self.model_calls
        counts.tool_calls = self.tool_calls
        if self.turns:
            counts.turns = self.turns
        read, wrote = self.input_tokens, self.output_tokens
        counts.input_tokens = read if read < _MOST_TOKENS else _MOST_TOKENS
        counts.output_tokens = wrote if wrote < _MOST_TOKENS else _MOST_TOKENS
