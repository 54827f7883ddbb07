"""Media that items refer to, put back in their places. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import JsonValue, items_to_list

_PREFIX: Final = "gymmesh-media:"


def items_with_media(
    items: list[responses_pb2.Item], media: Sequence[pb.MediaAdded]
) -> list[JsonValue]:
    """Items as JSON, references to the rollout's media replaced by data URLs."""
    written = items_to_list(items)
    if not media:
        return written
    urls = {
        _PREFIX + medium.digest: (
            f"data:{medium.media_type};base64,{base64.b64encode(medium.data).decode()}"
        )
        for medium in media
    }
    return [_resolve(item, urls) for item in written]


def _resolve(value: JsonValue, urls: dict[str, str]) -> JsonValue:
    if type(value) is dict:
        return {key: _resolve(member, urls) for key, member in value.items()}
    if type(value) is list:
        return [_resolve(element, urls) for element in value]
    return urls.get(value, value) if type(value) is str else value
