"""How a model call is put: only what is new where the service holds the rest, else all of it.

plain   the whole conversation, and nothing kept
whole   the whole conversation, to be kept, with the tokens of the calls before
short   the new items alone, after the call that the service knows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2

Items = Sequence[responses_pb2.Item]


class Kept(msgspec.Struct, eq=False):
    """How a conversation goes on that the service should keep.

    Attributes:
        conversation: its id, the same for all of an attempt's calls.
        capture: what is to be captured; None: nothing.
        known: how many leading items are the parent call's; 0 when the service cannot have them
            as they are now.
        prefix: the tokens of these, for a conversation that is sent whole.
        token: the service's, for the known items.
    """

    conversation: str
    capture: tokens_pb2.CaptureOptions | None
    known: int = 0
    prefix: Callable[[], model_pb2.PrefixTokens | None] | None = None
    token: bytes = b""


class Asking(msgspec.Struct, eq=False):
    """One model call, and the instance that is asked.

    Attributes:
        call_id: its id.
        model: the name of the service.
        role: the role that the model has.
        changes: Responses parameters that this call alone changes.
        items: the whole conversation.
        parent: the call of the same service that it continues; empty when there is none, or when
            it left neither a kept conversation nor tokens.
        kept: how the conversation goes on at the service; None: it is not worth keeping.
        is_plain: whether it is put without its conversation, for whatever reason.
        instance: who was asked last; None: nobody yet.
    """

    call_id: str
    model: str
    role: str
    changes: Mapping[str, Any] | None
    items: Items
    parent: str
    kept: Kept | None
    is_plain: bool
    instance: discovery_pb2.Instance | None = None
