"""The conversations that callers continue, so that they send only new items. Pure.

A conversation is a tree of calls, kept completely or not at all: at most `most` of them and
`max_bytes` (the size of the contract's messages, times four for Python's overhead). The least
recently used is dropped first. This is only a cache: for a dropped conversation the answer is
CONVERSATION_UNKNOWN, and the caller sends the whole conversation.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.tokens import Prefix, TokenRecord, count
from gymmesh_responses import TOKEN_BYTES, items_to_list
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.security import owned

Json = dict[str, Any]
_OVERHEAD: Final = 4
_TOKEN_BYTES: Final = 16
_IDS: Final = "conversation.prefix_tokens.token_ids"
_ROWS: Final = "conversation.prefix_tokens.side_data_rows"
_ENDS: Final = "conversation.prefix_tokens.item_ends"


@dataclass(slots=True)
class _Tokens:
    """The tokens of a call, after those of its parent, and what is known of all of them."""

    parent: _Tokens | None
    own: bytes
    known: Prefix  # without tokens

    def prefix(self) -> Prefix:
        pieces: list[bytes] = []
        node: _Tokens | None = self
        while node is not None:
            pieces.append(node.own)
            node = node.parent
        return replace(self.known, tokens=b"".join(reversed(pieces)))


@dataclass(slots=True)
class _CachedCall:
    """A call: the items that it added, and its answer's, parsed when it is gone on with."""

    parent: _CachedCall | None
    new: list[Any]
    answer: responses_pb2.Response
    total: int
    tokens: _Tokens | None
    size: int
    token: bytes = field(default_factory=lambda: secrets.token_bytes(_TOKEN_BYTES))
    _items: list[Any] | None = None
    _all: list[Any] | None = None

    def items(self) -> list[Any]:
        if self._items is None:
            self._items = [*self.new, *items_to_list(self.answer.output)]
        return self._items

    def all_items(self) -> list[Any]:
        """The whole conversation. Kept for the call after this one, so that a long conversation
        is not put together from its calls each time; its last call alone keeps it.
        """
        if self._all is None:
            chain: list[_CachedCall] = []
            node: _CachedCall | None = self
            while node is not None and node._all is None:
                chain.append(node)
                node = node.parent
            known: list[Any] = []
            if node is not None and node._all is not None:
                known, node._all = node._all, None
            self._all = [*known, *(item for call in reversed(chain) for item in call.items())]
        return self._all


@dataclass(slots=True)
class _Conversation:
    calls: dict[str, _CachedCall] = field(default_factory=dict)
    bytes: int = 0


@dataclass(slots=True)
class OpenCall:
    """A call of a conversation, found but not answered yet.

    Attributes:
        key: the conversation's.
        items: the whole conversation as items, parsed, when only new ones came; else None.
        prefix: the tokens to go on from, where there are any.
    """

    key: tuple[str, str]
    items: list[Any] | None
    prefix: Prefix | None
    parent: _CachedCall | None
    new: list[Any]
    size: int


class ConversationCache:
    """The `most` conversations used last, in `max_bytes` by the estimate above.

    bytes: what they take, by that.
    """

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._held: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def find(
        self,
        request: model_pb2.CreateResponseRequest,
        params: Mapping[str, Any],
        identity: str = "",
    ) -> OpenCall:
        """The place of a call in its conversation.

        request: with a `conversation`. params: its parameters, parsed; their `input` is taken
        over and must not be changed afterwards. identity: the caller's, to whom it belongs.
        Raises MeshError CONVERSATION_UNKNOWN, or FIELD_INVALID for prefix tokens that cannot be.
        """
        ref = request.conversation
        key = (owned(identity, request.rollout_id), ref.id)
        value = params.get("input")
        if isinstance(value, str):
            value = [{"type": "message", "role": "user", "content": value}]
        new: list[Any] = value if isinstance(value, list) else []
        size = request.ByteSize()
        if not ref.parent_call_id:
            sent = ref.prefix_tokens
            prefix = _sent_prefix(sent, len(new)) if sent.token_ids else None
            return OpenCall(key, None, prefix, None, new, size)
        parent = self.check(request, identity)
        items = [*parent.all_items(), *new]
        prefix = parent.tokens.prefix() if parent.tokens else None
        return OpenCall(key, items, prefix, parent, new, size)

    def check(self, request: model_pb2.CreateResponseRequest, identity: str = "") -> _CachedCall:
        """The call that this one goes on from. Raises MeshError CONVERSATION_UNKNOWN."""
        ref = request.conversation
        key = (owned(identity, request.rollout_id), ref.id)
        conversation = self._held.get(key)
        parent = conversation.calls.get(ref.parent_call_id) if conversation else None
        if parent is None:
            raise _unknown(
                ref,
                "is not in this model service: the service never had the conversation, or removed "
                "the conversation",
            )
        if parent.token != ref.parent_token:
            raise _unknown(ref, "differs from the copy that this model service holds")
        self._held.move_to_end(key)
        return parent

    def keep(
        self,
        turn: OpenCall,
        answer: model_pb2.CreateResponseResponse,
        record: TokenRecord | None,
    ) -> None:
        """Adds an answered call to its conversation, and sets the answer's token."""
        asked = len(turn.new) + (turn.parent.total if turn.parent else 0)
        total = asked + len(answer.response.output)
        tokens = None
        if record is not None and record.known:
            tokens = _tokens(turn, record, asked, total)
        size = (turn.size + answer.ByteSize()) * _OVERHEAD
        call = _CachedCall(turn.parent, turn.new, answer.response, total, tokens, size)
        answer.conversation_token = call.token
        conversation = self._held.pop(turn.key, None) or _Conversation()
        replaced = conversation.calls.get(answer.call_id)
        conversation.calls[answer.call_id] = call
        grown = size - (replaced.size if replaced is not None else 0)
        conversation.bytes += grown
        self.bytes += grown
        self._held[turn.key] = conversation
        while self._held and (len(self._held) > self._most or self.bytes > self._max_bytes):
            self.bytes -= self._held.popitem(last=False)[1].bytes

    def drop(self, rollout_id: str, conversation_id: str) -> None:
        """Gives one up, if it is held."""
        gone = self._held.pop((rollout_id, conversation_id), None)
        if gone is not None:
            self.bytes -= gone.bytes


def _sent_prefix(sent: model_pb2.PrefixTokens, items: int) -> Prefix:
    """What a caller that sends a conversation whole says of its tokens."""
    ends, total = list(sent.item_ends), count(sent.token_ids)
    if len(sent.token_ids) % TOKEN_BYTES:
        raise field_invalid(
            _IDS, f"has {len(sent.token_ids)} bytes, which is not a multiple of {TOKEN_BYTES}"
        )
    if len(ends) > items:
        raise field_invalid(
            _ENDS,
            f"must not have more ends ({len(ends)}) than the conversation has items ({items})",
        )
    if ends != sorted(ends) or (ends and ends[-1] > total):
        raise field_invalid(
            _ENDS, f"must be in ascending order and at most {total}, the number of tokens"
        )
    rows = dict(sent.side_data_rows)
    if any(known > total for known in rows.values()):
        raise field_invalid(_ROWS, f"must be at most {total}, the number of tokens")
    if not ends or ends[-1] < total:
        return Prefix(sent.token_ids, len(ends), 0, 0, 0, rewritten=True)
    first = ends[0]
    before = [end for end in ends if end < total]
    return Prefix(
        sent.token_ids,
        items=len(ends),
        first_items=sum(1 for end in ends if end == first),
        first_tokens=first,
        output_tokens=total - before[-1] if before else 0,
        side_rows=rows,
    )


def _tokens(turn: OpenCall, record: TokenRecord, asked: int, total: int) -> _Tokens:
    """asked: how many items the call was asked with. total: and with those of its answer."""
    output = b"".join(record.output)
    own = record.prompt + output
    parent = turn.parent.tokens if turn.parent else None
    first_items, first_tokens = asked, record.prompt_tokens
    if record.prefix_tokens:
        assert turn.prefix is not None
        first_items, first_tokens = turn.prefix.first_items, turn.prefix.first_tokens
        if parent is None:
            own = turn.prefix.tokens + own
    else:
        parent = None
    known = Prefix(
        b"",
        items=total,
        first_items=first_items,
        first_tokens=first_tokens,
        output_tokens=count(output),
        closed=record.closed,
        rendered=record.rendered,
        is_rendered=record.rendered is None,
        preamble=record.preamble,
        side_rows=record.side_rows,
    )
    return _Tokens(parent, own, known)


def _unknown(ref: model_pb2.ConversationRef, why: str) -> MeshError:
    return MeshError(
        errors.ERROR_REASON_CONVERSATION_UNKNOWN,
        f"the conversation '{ref.id}' up to call '{ref.parent_call_id}' {why}; send the "
        "whole conversation",
        metadata={"conversation_id": ref.id},
    )
