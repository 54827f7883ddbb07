"""A rollout, built from the events of one attempt. Pure.

fold           builds a rollout from events, by the stream law
rollout_parts  the messages of the events, as a fold collects them
conversation   the input and answer of a model call, found by following parents
from_row       a rollout as its row keeps it
tokens         a call's tokens, joined from its events
free_tokens    which sampled tokens a trainer learns from
reading        the sums over calls that a row needs, computed in one pass
sums           sums that fit their column
work_elsewhere whether the work may be in a conversation other than the main one
"""

from gymmesh_client.rollout.conversation import (
    CallPart,
    CallParts,
    continuation,
    conversation,
    final_call,
    path_to,
    shared_ids,
    transcript,
)
from gymmesh_client.rollout.fold import Fold, StreamViolation, fold
from gymmesh_client.rollout.free_tokens import (
    constrained_stretches,
    free_stretches,
    is_learned,
)
from gymmesh_client.rollout.from_row import completed_of_row, failed_of_row
from gymmesh_client.rollout.reading import RolloutReading, read
from gymmesh_client.rollout.rollout_parts import RolloutParts
from gymmesh_client.rollout.sums import as_int64, as_uint32, as_uint64
from gymmesh_client.rollout.tokens import CallTokens, call_tokens
from gymmesh_client.rollout.work_elsewhere import work_elsewhere

__all__ = [
    "CallPart",
    "CallParts",
    "CallTokens",
    "Fold",
    "RolloutParts",
    "RolloutReading",
    "StreamViolation",
    "as_int64",
    "as_uint32",
    "as_uint64",
    "call_tokens",
    "completed_of_row",
    "constrained_stretches",
    "continuation",
    "conversation",
    "failed_of_row",
    "final_call",
    "fold",
    "free_stretches",
    "is_learned",
    "path_to",
    "read",
    "shared_ids",
    "transcript",
    "work_elsewhere",
]
