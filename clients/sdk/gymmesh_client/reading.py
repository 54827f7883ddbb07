"""A rollout's calls, each looked at once, for whoever writes of the whole of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.parts import RolloutParts, ToolKey


class Reading:
    """What stands in several places of a row.

    Every look at a message inside a message makes an object, and the parts of a row ask for the
    same ones; this is most of what a row costs.

    Attributes:
        parts: what is read.
        calls: its model calls by their ids.
        last: the end of the final transcript, see `gymmesh_client.conversation.final_call`.
        last_id: its id; empty where there is none.
        captured: the calls that say something of tokens.
        tools: its tool calls as they were answered, in their order, each with its key.
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
        "last_id",
        "model_us",
        "output_tokens",
        "parts",
        "queue_us",
        "reasoning_tokens",
        "started_at",
        "steps",
        "tools",
        "tools_us",
    )

    def __init__(self, parts: RolloutParts) -> None:
        self.parts = parts
        self.started_at = parts.started_unix_nano / 1e9
        self._look_at_calls(parts.calls)
        tools: list[tuple[ToolKey, pb.ToolCallCompleted]] = []
        tools_us = 0
        for record in parts.tools:
            done = record.completed or record.answer()
            tools.append((record.key, done))
            tools_us += done.timings.total_us
        self.tools, self.tools_us = tools, tools_us

    def _look_at_calls(self, calls: Sequence[pb.ModelCallCompleted]) -> None:
        by_id: dict[str, pb.ModelCallCompleted] = {}
        captured = []
        last, last_id, call_id = None, "", ""
        steps = model_us = queue_us = given = wrote = cached = reasoning = 0
        for call in calls:
            call_id = call.call_id
            by_id[call_id] = call
            timings = call.timings
            model_us += timings.total_us
            queue_us += timings.queue_us
            if call.HasField("tokens"):
                captured.append(call)
            if call.actor:
                continue
            last, last_id = call, call_id
            steps += 1
            usage = call.response.usage
            given += usage.input_tokens
            wrote += usage.output_tokens
            cached += usage.cached_tokens
            reasoning += usage.reasoning_tokens
        if last is None and calls:
            # With actors alone, it is the last call of all.
            last, last_id = calls[-1], call_id
        self.calls, self.last, self.last_id, self.captured = by_id, last, last_id, captured
        self.steps, self.model_us, self.queue_us = steps, model_us, queue_us
        self.input_tokens, self.output_tokens = given, wrote
        self.cached_tokens, self.reasoning_tokens = cached, reasoning
