"""How a model call is put: only what is new where the service holds the rest, else all of it.

plain   the whole conversation, and nothing kept
whole   the whole conversation, to be kept, with the tokens of the calls before
short   the new items alone, after the call that the service knows
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import item_to_json

# Keeping a conversation costs both sides more than sending one as short as this again.
_FEW_ITEMS = 6

Items = Sequence[responses_pb2.Item]
Make = Callable[[Items], model_pb2.CreateResponseRequest]


@dataclass(slots=True)
class Asking:
    """One model call, before it is known which instance is asked.

    Attributes:
        make: the request for these items, without `conversation`.
        items: the whole conversation.
        conversation: its id, the same for all of an attempt's calls.
        parent: the call that it continues; empty when there is none.
        known: how many leading items are the parent call's; 0 when the service cannot have them
            as they are now.
        prefix: the tokens of these, for a conversation that is sent whole.
        capture: what is to be captured; None: nothing.
        digest: of the known items, as the contract has it; empty where it is not compared.
        is_plain: whether it was put so in the end.
    """

    make: Make
    items: Items
    conversation: str
    parent: str = ""
    known: int = 0
    prefix: Callable[[], model_pb2.PrefixTokens | None] | None = None
    capture: tokens_pb2.CaptureOptions | None = None
    digest: bytes = b""
    is_plain: bool = False

    @property
    def worth_keeping(self) -> bool:
        """Whether the service should keep the conversation."""
        # Tokens go on only in a conversation that is kept.
        return self.capture is not None or len(self.items) > _FEW_ITEMS

    @property
    def continues(self) -> bool:
        """Whether it can be put short."""
        return bool(self.parent and self.known)

    def plain(self) -> model_pb2.CreateResponseRequest:
        """All, for a service that keeps no conversations."""
        self.is_plain = True
        return self._made(self.items)

    def whole(self) -> model_pb2.CreateResponseRequest:
        """All, for a service that does not have it (any more)."""
        request = self._made(self.items)
        request.conversation.id = self.conversation
        tokens = self.prefix() if self.prefix is not None else None
        if tokens is not None:
            request.conversation.prefix_tokens.CopyFrom(tokens)
        return request

    def short(self) -> model_pb2.CreateResponseRequest:
        """What is new."""
        request = self._made(self.items[self.known :])
        request.conversation.id = self.conversation
        request.conversation.parent_call_id = self.parent
        request.conversation.prefix_digest = self.digest
        return request

    def _made(self, items: Items) -> model_pb2.CreateResponseRequest:
        request = self.make(items)
        if self.capture is not None:
            request.capture.CopyFrom(self.capture)
        return request


@dataclass(frozen=True, slots=True)
class _Link:
    model: str
    items: int
    kept: bool
    hasher: Hasher | None


class Hasher:
    """SHA-256 over items, each as the codec writes it, with a line feed after it.

    Raises:
        CodecError: from the constructor, for an item that is no JSON.
    """

    def __init__(self, items: Iterable[responses_pb2.Item], before: Hasher | None = None) -> None:
        # hashlib has no public type for it.
        self._state: Any = hashlib.sha256() if before is None else before._state.copy()
        for item in items:
            self._state.update(item_to_json(item) + b"\n")

    def digest(self) -> bytes:
        """Over all of them."""
        return bytes(self._state.digest())


class Links:
    """What the model services know of each call, if they still have it."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, _Link] = {}

    def add(
        self, call_id: str, model: str, items: int, *, kept: bool, hasher: Hasher | None = None
    ) -> None:
        """A call was answered.

        Args:
            model: the name of the service.
            items: how many its conversation has, its answer included.
            kept: whether the service was asked to keep the conversation, and the answer is in
                it as the service sent it.
            hasher: over these items, where their digest is compared.
        """
        self._calls[call_id] = _Link(model, items, kept, hasher)

    def hasher(self, call_id: str) -> Hasher | None:
        """Over the items of that call's conversation."""
        link = self._calls.get(call_id)
        return None if link is None else link.hasher

    def same(self, call_id: str, model: str) -> bool:
        """Whether that call was answered by that service."""
        link = self._calls.get(call_id)
        return link is not None and link.model == model

    def items(self, call_id: str) -> int:
        """How many items that call's conversation had."""
        return self._calls[call_id].items

    def kept(self, call_id: str) -> bool:
        """Whether the service may have that call's conversation as it is."""
        return self._calls[call_id].kept
