"""The parameters of calls without their input, read once for all calls that share them.

A run sends the same tools and the same sampling parameters thousands of times, and again with
each turn. Reading them, and making of them what the endpoint wants, costs more than all else
about a short request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from google.protobuf.message import Message

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.config import merge_params
from gymmesh_responses import settings_to_dict

# Kept at most: so many, and as many bytes as the contract's messages would take.
_MOST: Final = 1024
_MOST_BYTES: Final = 8 * 1024 * 1024
_INPUT: Final = pb.ResponseParams.DESCRIPTOR.fields_by_name["input"]
_INPUT_TEXT: Final = pb.ResponseParams.DESCRIPTOR.fields_by_name["input_text"]
# Of the class, since a message looks through the names of its fields to find its methods.
_FIELDS_OF: Final = pb.ResponseParams.ListFields
_SERIALIZED: Final[Callable[[Any], bytes]] = pb.ResponseParams.SerializeToString
_SCALARS: Final = frozenset((str, bytes, bool, int, float))


class Settings:
    """Parameters without `input`, the configured ones merged in. Shared, so never changed.

    params: as parsed JSON. made: what the backend has made of them; None before the first call.
    """

    __slots__ = ("made", "params")

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.made: Any = None


class KnownSettings:
    """The settings of a model's calls.

    defaults: the configured parameters. model: the model's name at the endpoint, put in place of
    the request's, or None.
    """

    def __init__(self, defaults: dict[str, Any], model: str | None) -> None:
        self._defaults = defaults
        self._model = model
        self._known: dict[Hashable, Settings] = {}
        self._bytes = 0

    def of(self, params: pb.ResponseParams) -> Settings | None:
        """The settings of a call; None where the input is no list of items, or not there alone.

        Raises CodecError for parameters that hold what JSON cannot.
        """
        key = _key(params)
        if key is None:
            return None
        settings = self._known.get(key)
        if settings is None:
            merged = merge_params(self._defaults, settings_to_dict(params), self._model)
            if "input" in merged:  # of the overlay, or configured
                return None
            settings = self._keep(key, Settings(merged), params)
        return settings

    def _keep(self, key: Hashable, settings: Settings, params: pb.ResponseParams) -> Settings:
        size = params.ByteSize()
        if len(self._known) >= _MOST or self._bytes + size > _MOST_BYTES:
            # What is in use comes back with the next calls.
            self._known.clear()
            self._bytes = 0
        self._known[key] = settings
        self._bytes += size
        return settings


def _key(params: pb.ResponseParams) -> Hashable | None:
    """All that is set but the items; None for an input that is text.

    The items are not looked at, so that it costs the same for a conversation of any length.
    """
    key: list[Hashable] = []
    for field, value in _FIELDS_OF(params):
        # There is one descriptor of a field for as long as somebody has it.
        if field is _INPUT:
            continue
        if field is _INPUT_TEXT:
            return None
        key.append(field)
        if type(value) in _SCALARS:
            key.append(value)
        elif isinstance(value, Message):
            key.append(_SERIALIZED(value))
        else:
            key += map(_SERIALIZED, value[:])  # to go through a list is cheaper
    return tuple(key)
