"""A rollout's calls, each looked at once, for whoever writes of the whole of it. Pure."""

from __future__ import annotations

from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.parts import RolloutParts

_NOTHING: Final = pb.Started()


class Reading:
    """What stands in several places of a row.

    Every look at a message inside a message makes an object, and the parts of a row ask for the
    same ones; this is most of what a row costs.

    Attributes:
        parts: what is read.
        started: how it began; empty for one that never did.
        calls: its model calls, in the order in which they completed.
        last: the end of the final transcript, see `gymmesh_client.conversation.final_call`.
        captured: the calls that say something of tokens.
        tools: its tool calls as they were answered, in their order.
        turns: the environment's turns, in order.
        steps: how many calls the root agent made; the tokens are those of these.
        started_at: when it started, in seconds since 1970.
        model_us: microseconds that model calls took, whoever made them.
        queue_us: microseconds of these that they waited for a place.
        tools_us: microseconds that tool calls took.
    """

    __slots__ = (
        "cached_tokens",
        "calls",
        "captured",
        "input_tokens",
        "last",
        "model_us",
        "output_tokens",
        "parts",
        "queue_us",
        "reasoning_tokens",
        "started",
        "started_at",
        "steps",
        "tools",
        "tools_us",
        "turns",
    )

    def __init__(self, parts: RolloutParts) -> None:
        self.parts = parts
        self.started = _NOTHING if parts.started is None else parts.started
        self.started_at = parts.started_unix_nano / 1e9
        self.turns = parts.turns
        self._look_at_calls(parts.calls)
        self.tools = tools = [record.answer() for record in parts.tools]
        tools_us = 0
        for done in tools:
            tools_us += done.timings.total_us
        self.tools_us = tools_us

    def _look_at_calls(self, calls: list[pb.ModelCallCompleted]) -> None:
        last = calls[-1] if calls else None
        captured = []
        steps = model_us = queue_us = given = wrote = cached = reasoning = 0
        for call in calls:
            timings = call.timings
            model_us += timings.total_us
            queue_us += timings.queue_us
            if call.HasField("tokens"):
                captured.append(call)
            if call.actor:
                continue
            last = call
            steps += 1
            usage = call.response.usage
            given += usage.input_tokens
            wrote += usage.output_tokens
            cached += usage.cached_tokens
            reasoning += usage.reasoning_tokens
        # With actors alone, `last` is the last call of all.
        self.calls, self.last, self.captured = calls, last, captured
        self.steps, self.model_us, self.queue_us = steps, model_us, queue_us
        self.input_tokens, self.output_tokens = given, wrote
        self.cached_tokens, self.reasoning_tokens = cached, reasoning
