"""What the tree says of a request."""

from __future__ import annotations

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh.rollout.v1 import rollout_pb2


class RepeatedCall(msgspec.Struct, frozen=True):
    """The request repeats an earlier one and gets the same answer, never a second sample.

    Attributes:
        ticket: of the earlier call. Its answer may still be on its way.
    """

    ticket: int


class NewCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The request is a call of its own: what its event in the rollout says.

    Attributes:
        ticket: the call's number in the tree, from 1.
        parent: the id of the recorded call that it hangs on; empty: it hangs on none.
        detached: whether its conversation is `items` alone. `parent` then only says what led to it.
        items: what no earlier event carries: the items after the parent's conversation, or the
            whole conversation where it is detached. Recorded items are as recorded, and tool
            outputs have the recorded calls' ids.
        link: how it hangs on `parent`.
        fork: why it departs from `parent`; set exactly when `link` is CALL_LINK_FORK.
        side_call: what a call beside the conversation is for; empty for all others.
        actor: whose conversation it is: empty for the program's main one.
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
