"""Rewards of parts of a rollout, by the model calls that earned them. Pure.

    of the environment's turns    go to the call that the turn answers
    of tool calls                 go to the call that asked for them
    of the verdict's spans        go to the last call of the span, at the token where it ends

None of them is the rollout's own reward, nor changes it.
"""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_trainers.rollouts.token_tree import PartReward


def credits_of(rollout: pb.Rollout) -> dict[str, list[PartReward]]:
    """The rewards of parts of each call, by call id. A span of an actor that made no call, or that
    ends in an unknown one, belongs to no call and is left out.
    """
    found: dict[str, list[PartReward]] = {}
    for tool in rollout.tool_calls:
        if tool.completed.HasField("reward"):
            found.setdefault(tool.completed.model_call_id, []).append((None, tool.completed.reward))
    for turn in rollout.turns:
        if turn.HasField("reward"):
            found.setdefault(turn.model_call_id, []).append((None, turn.reward))
    last = {call.actor: call.call_id for call in rollout.model_calls}
    for span in rollout.verified.verification.spans:
        call_id = span.last_call_id or last.get(span.actor)
        if call_id is not None:
            end = span.end_token if span.HasField("end_token") else None
            found.setdefault(call_id, []).append((end, span.value))
    return found


def turn_scores(rollout: pb.Rollout) -> list[float]:
    """The rewards of the environment's turns, in order; of those that have one."""
    return [turn.reward for turn in rollout.turns if turn.HasField("reward")]


def tool_rewards(rollout: pb.Rollout) -> list[float]:
    """The rewards of the tool calls, in order; of those that have one."""
    calls = (tool.completed for tool in rollout.tool_calls)
    return [call.reward for call in calls if call.HasField("reward")]
