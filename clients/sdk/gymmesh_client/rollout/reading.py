"""What a row needs of a rollout's calls, summed up in one pass. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout.conversation import Answered
from gymmesh_client.rollout.rollout_parts import RolloutParts
from gymmesh_client.rollout.sums import as_int64, as_uint64
from gymmesh_rows import EnumNames

_TOOL_OUTCOMES: Final = EnumNames(pb.ToolOutcome, "TOOL_OUTCOME_")


class RolloutReading(msgspec.Struct, eq=False, gc=False):
    """What stands in several places of a row: each look at a message makes an object."""

    # A Struct, as each rollout makes one; never part of a cycle.

    parts: RolloutParts
    calls: dict[str, Answered] = {}  # by their ids
    # The end of the final transcript, as `gymmesh_client.rollout.conversation.final_call` has it.
    last: Answered | None = None
    last_id: str = ""
    weights: set[int] = set()  # versions that wrote what a trainer should learn from
    actors: dict[str, list[pb.ModelCallCompleted]] = {}  # beside the root agent, by their names
    # How often a tool of this name was answered so, in the order of the first ones. An outcome of a
    # later contract counts as UNSPECIFIED, as the contract has it, and so does that of a call which
    # nobody answered.
    tool_outcomes: dict[tuple[str, str], int] = {}
    steps: int = 0  # calls of the root agent; the tokens are those of these
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model_us: int = 0  # microseconds that model calls took, actors' included
    queue_us: int = 0  # of these, waiting for a place
    endpoint_us: int = 0  # and at endpoints, until they answered
    retries: dict[str, int] = {}  # how often an endpoint was asked again, by reason
    tools_us: int = 0

    def release(self) -> None:
        """Let the calls go, one at a time; see RolloutParts.release."""
        while self.calls:
            self.calls.popitem()


def read(parts: RolloutParts) -> RolloutReading:
    """Look at all calls of a rollout, whose tool calls are put in their order."""
    parts.order()
    found = RolloutReading(parts)
    for call in parts.calls:
        call_id = call.call_id
        response = call.response
        found.calls[call_id] = answered = (call, response)
        timings = call.timings
        found.model_us += timings.total_us
        found.queue_us += timings.queue_us
        found.endpoint_us += timings.endpoint_us
        if call.retries:
            for one in call.retries:
                found.retries[one.reason] = found.retries.get(one.reason, 0) + one.count
        if call.trainable and call.HasField("tokens"):  # other models have versions of their own
            found.weights.update([span.version for span in call.tokens.weights[:]])
        if actor := call.actor:
            found.actors.setdefault(actor, []).append(call)
            continue
        found.last, found.last_id = answered, call_id
        found.steps += 1
        usage = response.usage
        found.input_tokens += usage.input_tokens
        found.output_tokens += usage.output_tokens
        found.cached_tokens += usage.cached_tokens
        found.reasoning_tokens += usage.reasoning_tokens
    if found.last is None and found.calls:
        # With actors alone, it is the last call of all.
        found.last, found.last_id = answered, call_id
    found.input_tokens = as_int64(found.input_tokens)
    found.output_tokens = as_int64(found.output_tokens)
    found.cached_tokens = as_int64(found.cached_tokens)
    found.reasoning_tokens = as_int64(found.reasoning_tokens)
    found.model_us = as_uint64(found.model_us)
    outcomes = found.tool_outcomes
    for record in parts.tools:
        done = record.completed or record.answer()
        answered_so = (done.name, _TOOL_OUTCOMES.get(done.outcome, "UNSPECIFIED"))
        outcomes[answered_so] = outcomes.get(answered_so, 0) + 1
        found.tools_us += done.timings.total_us
    found.tools_us = as_uint64(found.tools_us)
    return found
