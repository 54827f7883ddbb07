"""One call of the model service on its way to an answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.calls.progress import CallProgress
from gymmesh_model.serving.conversations import OpenCall
from gymmesh_model.tokens.record import TokenRecord


class CallState(msgspec.Struct, eq=False):
    """What is known of a call; filled in as it goes, so that an abort finds what there is.

    Attributes:
        request: as it came; given up once the backend's call is made of it, since thousands of
            calls may wait for their answers.
        request_id, call_id, rollout_id: the request's.
        model: the name of the model that it asks for, where the endpoint has none of its own.
        seed: the request's.
        has_conversation: whether the request names its conversation.
        timeout: seconds for all of it, waiting included.
        progress: of a call that is streamed; None for one that is not.
        identity: the caller's, to whom its conversation belongs.
        queue_s: seconds that it waited for a place.
        turn: its place in its conversation, where it has one.
        record: its tokens, where they are wanted and can be had.
        from_cache: whether its answer was kept from another call.
        versions: the weights in force while it ran, oldest first.
    """

    # A Struct, as every call makes one: it is filled without a step in Python.

    request: model_pb2.CreateResponseRequest | None
    request_id: str
    call_id: str
    rollout_id: str
    model: str
    seed: int | None
    has_conversation: bool
    timeout: float
    progress: CallProgress | None
    identity: str = ""
    queue_s: float = 0.0
    turn: OpenCall | None = None
    record: TokenRecord | None = None
    from_cache: bool = False
    versions: Sequence[int] = ()
