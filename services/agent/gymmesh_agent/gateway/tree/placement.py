"""The tree's decisions about a request."""

from __future__ import annotations

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh.rollout.v1 import rollout_pb2


class RepeatedCall(msgspec.Struct, frozen=True):
    """The request repeats an earlier one and gets the same answer, never a second sample.

    Attributes:
        ticket: the earlier call's number. Its answer may still be in progress.
    """

    ticket: int


class NewCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The request is a new call. The fields are those of its event in the rollout.

    Attributes:
        ticket: the call's number in the tree, from 1.
        parent: the id of the recorded call that it is attached to; empty: none.
        detached: whether its conversation is only `items`. `parent` then only says which call led
            to it.
        items: the items that no earlier event has: those after the parent's conversation, or the
            whole conversation if it is detached. Recorded items have their recorded form, and tool
            outputs have the recorded calls' ids.
        link: how it is related to `parent`.
        fork: why it departs from `parent`; set exactly if `link` is CALL_LINK_FORK.
        side_call: the purpose of a side call; empty for all others.
        actor: the actor of its conversation; empty for the program's main conversation.
        trainable: whether a trainer should learn from the answer.
    """

    ticket: int
    parent: str = ""
    detached: bool = False
    items: tuple[pb.Item, ...] = ()
    link: rollout_pb2.CallLink.ValueType = rollout_pb2.CALL_LINK_CONTINUATION
    fork: tokens_pb2.Fork | None = None
    side_call: str = ""
    actor: str = ""
    trainable: bool = True
