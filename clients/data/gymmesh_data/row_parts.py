"""Which parts of a row are decoded: most of what an export costs is making objects of JSON text.

A row is mostly the ids of its tokens, which a format of messages has no place for, or text, which a
format of tokens has no use for. What is not asked for is checked to be JSON and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar

import msgspec

from gymmesh_responses import dumps, loads
from gymmesh_rows import RowError, nemo_row, read_row

_CALLS: Final = b'"calls":['


class RowParts(Enum):
    """What a reader of rows gets of each.

    Attributes:
        ALL: the row as it is.
        CHAT: what messages and metadata are made of; of tokens only that they are there. The
            conversations of actors are JSON text here and below, for `actors_of`.
        CHAT_AND_TOKENS: both; the lists of ids as JSON text (`msgspec.Raw`), for `samples_of`.
        TOKENS: what samples are made of, as there, and metadata, but no text.
    """

    ALL = "all"
    CHAT = "chat"
    CHAT_AND_TOKENS = "chat and tokens"
    TOKENS = "tokens"


ItemT = TypeVar("ItemT")  # what is decoded of an item
ReadRow: TypeAlias = Callable[[bytes], Any]


def row_reader(parts: RowParts) -> ReadRow:
    """What reads a line of JSON: the row, or whatever else it is, to be checked by the caller.

    A line that is not as it should be is read as a whole: there is one place that says what is
    wrong with it, and one codec for what msgspec refuses (unpaired surrogates).

    Returns:
        A function that raises CodecError for what is no JSON.
    """
    kind = _ROWS.get(parts)
    if kind is None:
        return loads
    decode: ReadRow = msgspec.json.Decoder(kind).decode

    def read(line: bytes) -> Any:
        try:
            if _CALLS in line:
                return decode(dumps(nemo_row(read_row(line))))
            return decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RowError):
            return loads(line)

    return read


class _Params(TypedDict, total=False):
    input: Any
    instructions: Any
    tools: Any
    parallel_tool_calls: Any


class _Item(TypedDict, total=False):
    type: Any
    role: Any


class _ChatItem(_Item, total=False):
    content: Any
    summary: Any
    name: Any
    arguments: Any
    call_id: Any
    output: Any


class _OnlyChat(_ChatItem, total=False):
    generation_token_ids: msgspec.Raw


class _OnlyTokens(_Item, total=False):
    prompt_token_ids: msgspec.Raw
    generation_token_ids: msgspec.Raw
    generation_log_probs: Any


class _ChatAndTokens(_ChatItem, _OnlyTokens, total=False):
    pass


class _ResponseParts(TypedDict, Generic[ItemT], total=False):
    output: list[ItemT]


class _RowParts(TypedDict, Generic[ItemT], total=False):
    responses_create_params: _Params
    first_items: Any
    response: _ResponseParts[ItemT]
    reward: Any
    task_id: Any
    rollout_id: Any
    repeat_index: Any
    environment: Any
    stop_reason: Any
    metadata: Any
    tags: Any
    actors: msgspec.Raw
    failure: Any


_ROWS: Final[Mapping[RowParts, Any]] = {
    RowParts.CHAT: _RowParts[_OnlyChat],
    RowParts.TOKENS: _RowParts[_OnlyTokens],
    RowParts.CHAT_AND_TOKENS: _RowParts[_ChatAndTokens],
}
