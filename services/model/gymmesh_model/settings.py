"""The parameters of calls without their input, read once for all calls that share them.

A run sends the same tools and the same sampling parameters thousands of times, and again with
each turn. Reading them, and making of them what the endpoint wants, costs more than all else
about a short request.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.config import merge_params
from gymmesh_responses import settings_to_dict

# Kept at most: so many, and as many bytes as the contract's messages would take.
_MOST: Final = 1024
_MOST_BYTES: Final = 8 * 1024 * 1024
# Of the classes, since a message looks through the names of its fields to find its methods.
_SERIALIZED: Final = pb.ResponseParams.SerializeToString
_HAS: Final = pb.ResponseParams.HasField


def _bare_class() -> Any:
    """The class of parameters as messages that know `input` alone, its items being mere bytes.

    All else they carry along as it came. So the items can be left out without being looked at.
    """
    number = pb.ResponseParams.INPUT_FIELD_NUMBER
    file = descriptor_pb2.FileDescriptorProto(name="bare.proto", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Bare").field.add(
        name="input", number=number, type=kind.TYPE_BYTES, label=kind.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()  # its own: nobody else needs to know of it
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Bare"))


_BARE: Final = _bare_class()
_BARE_OF: Final = _BARE.FromString
_CLEAR: Final = _BARE.ClearField
_BARE_SERIALIZED: Final = _BARE.SerializeToString


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
        self._known: dict[bytes, Settings] = {}
        self._bytes = 0

    def known(self, raw: bytes) -> Settings | None:
        """What `of` gave for parameters as these, serialized; None when it is not known (any more).

        Costs hardly more for a conversation of any length.
        """
        key = _without_items(raw)
        return None if key is None else self._known.get(key)

    def of(self, params: pb.ResponseParams) -> Settings | None:
        """The settings of a call; None where the input is no list of items, or not there alone.

        Raises CodecError for parameters that hold what JSON cannot.
        """
        key = _without_items(_SERIALIZED(params))
        if key is None or _HAS(params, "input_text"):
            return None
        settings = self._known.get(key)
        if settings is None:
            merged = merge_params(self._defaults, settings_to_dict(params), self._model)
            if "input" in merged:  # of the overlay, or configured
                return None
            settings = self._keep(key, Settings(merged))
        return settings

    def _keep(self, key: bytes, settings: Settings) -> Settings:
        size = len(key)
        if len(self._known) >= _MOST or self._bytes + size > _MOST_BYTES:
            # What is in use comes back with the next calls.
            self._known.clear()
            self._bytes = 0
        self._known[key] = settings
        self._bytes += size
        return settings


def _without_items(raw: bytes) -> bytes | None:
    """Serialized parameters less the items of their input; None when they have none."""
    bare = _BARE_OF(raw)
    _CLEAR(bare, "input")
    key: bytes = _BARE_SERIALIZED(bare)
    return key if len(key) < len(raw) else None
