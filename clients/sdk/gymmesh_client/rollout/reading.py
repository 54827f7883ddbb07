"""What a row needs of a rollout's calls, summed up in one pass. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.boundaries import EnumNames
from gymmesh_client.rollout.conversation import Answered
from gymmesh_client.rollout.parts import RolloutParts

_TOOL_OUTCOMES: Final = EnumNames(pb.ToolOutcome, "TOOL_OUTCOME_")


class RolloutReading(msgspec.Struct, eq=False, gc=False):
    """What stands in several places of a row.

    The parts of a row ask for the same messages, and each look at one makes an object.

    Attributes:
        parts: what is read.
        calls: its model calls by their ids, each with its answer.
        last: the end of the final transcript, see `gymmesh_client.rollout.conversation.final_call`.
        last_id: its id; empty where there is none.
        captured: the calls that say something of tokens.
        actors: the calls of each actor beside the root agent, by its name.
        tool_outcomes: how often a tool of this name was answered so, in the order of the first
            ones. An outcome of a later contract counts as UNSPECIFIED, as the contract has it, and
            so does that of a call which nobody answered.
        steps: how many calls the root agent made; the tokens are those of these.
        model_us: microseconds that model calls took, actors' included.
        queue_us: microseconds of these that they waited for a place.
        tools_us: microseconds that tool calls took.
    """

    # A Struct, as each rollout makes one; never part of a cycle.

    parts: RolloutParts
    calls: dict[str, Answered]
    last: Answered | None
    last_id: str
    captured: list[pb.ModelCallCompleted]
    actors: dict[str, list[pb.ModelCallCompleted]]
    tool_outcomes: dict[tuple[str, str], int]
    steps: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    model_us: int
    queue_us: int
    tools_us: int


def read(parts: RolloutParts) -> RolloutReading:
    """Look at all calls of a rollout."""
    calls: dict[str, Answered] = {}
    captured = []
    actors: dict[str, list[pb.ModelCallCompleted]] = {}
    last: Answered | None = None
    last_id = ""
    steps = model_us = queue_us = given = wrote = cached = reasoning = 0
    for call in parts.calls:
        call_id = call.call_id
        response = call.response
        calls[call_id] = answered = (call, response)
        timings = call.timings
        model_us += timings.total_us
        queue_us += timings.queue_us
        if call.HasField("tokens"):
            captured.append(call)
        if actor := call.actor:
            actors.setdefault(actor, []).append(call)
            continue
        last, last_id = answered, call_id
        steps += 1
        usage = response.usage
        given += usage.input_tokens
        wrote += usage.output_tokens
        cached += usage.cached_tokens
        reasoning += usage.reasoning_tokens
    if last is None and calls:
        # With actors alone, it is the last call of all.
        last, last_id = answered, call_id
    outcomes: dict[tuple[str, str], int] = {}
    tools_us = 0
    for record in parts.tools:
        done = record.completed or record.answer()
        answered_so = (done.name, _TOOL_OUTCOMES.get(done.outcome, "UNSPECIFIED"))
        outcomes[answered_so] = outcomes.get(answered_so, 0) + 1
        tools_us += done.timings.total_us
    return RolloutReading(
        parts,
        calls,
        last,
        last_id,
        captured,
        actors,
        outcomes,
        steps,
        given,
        wrote,
        cached,
        reasoning,
        model_us,
        queue_us,
        tools_us,
    )
