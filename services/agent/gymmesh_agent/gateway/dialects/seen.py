"""A cache of the JSON that a rollout's programs sent, so that equal JSON is parsed once.

Programs send their whole conversation and all of their tools with every request. JSON with equal
bytes is parsed once, and later requests get the same objects as the first. This costs one digest
per item, and no comparison with other items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import Json
from gymmesh_responses import CodecError, dumps_clean, items_from_json

_DIGEST_BYTES: Final = 16
# So much is kept at least, in bytes of JSON and in lists of tools.
_LEAST_BYTES: Final = 1 << 20
_MOST_TOOLS: Final = 8


class ReadItem(NamedTuple):
    """An item of a conversation, and its digest: equal items have equal digests."""

    item: pb.Item
    digest: bytes


class ReadTools(NamedTuple):
    """The tools of a request, and their digest."""

    tools: tuple[Json, ...]
    digest: bytes


class SeenRequests:
    """The items and tools of a rollout's requests. Threads may share it.

    Items are in two generations. When the young generation has twice the bytes of the latest
    request, it replaces the old generation, which is dropped. So memory is limited to a few times
    the longest conversation, for any program.
    """

    def __init__(self) -> None:
        self._young: dict[bytes, ReadItem] = {}
        self._old: dict[bytes, ReadItem] = {}
        self._young_bytes = 0
        self._tools: dict[bytes, ReadTools] = {}

    def items(self, documents: Sequence[Json]) -> list[ReadItem]:
        """The items of this JSON, in Responses' form. Raises CodecError as `items_from_json`."""
        texts = [dumps_clean(document) for document in documents]
        keys = [_digest(text) for text in texts]
        young, old = self._young, self._old
        found = [young.get(key) or old.get(key) for key in keys]
        new = [place for place, one in enumerate(found) if one is None]
        try:
            made = items_from_json([documents[place] for place in new])
        except CodecError:
            items_from_json(list(documents))  # its error names the place among all of them
            raise
        for place, item in zip(new, made, strict=True):
            found[place] = ReadItem(item, _digest(item.SerializeToString(deterministic=True)))
        read = [one for one in found if one is not None]
        self._young_bytes += sum(
            len(text) for key, text in zip(keys, texts, strict=True) if key not in young
        )
        young.update(zip(keys, read, strict=True))
        if self._young_bytes > 2 * max(sum(map(len, texts)), _LEAST_BYTES):
            self._young, self._old, self._young_bytes = {}, young, 0
        return read

    def tools(self, tools: Sequence[Json], check: Callable[[Sequence[Json]], None]) -> ReadTools:
        """Tools in Responses' JSON form; equal tools are the same object.

        Args:
            check: raises an error for invalid tools; called for new tools.
        """
        key = _digest(dumps_clean(tools))
        found = self._tools.get(key)
        if found is None:
            check(tools)
            found = ReadTools(tuple(tools), key)
            if len(self._tools) >= _MOST_TOOLS:
                self._tools = {}
            self._tools[key] = found
        return found


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
