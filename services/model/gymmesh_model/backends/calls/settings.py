"""The parameters of calls without their input, read once for all calls that share them.

A run sends the same tools and the same sampling parameters thousands of times, and again with
each turn. Reading them, and making of them what the endpoint wants, costs more than all else
about a short request.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.config import merge_params
from gymmesh_responses import settings_to_dict

# Kept at most: so many, none of which takes more bytes than that as a message.
_MOST: Final = 256
_MOST_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False)
class CallSettings:
    """Parameters without `input`, the configured ones merged in. Shared, so never changed.

    params: as parsed JSON. made: what the backend has made of them; None before the first call.
    """

    params: dict[str, Any]
    made: Any = None


class KnownSettings:
    """A cache of the settings of a model's calls.

    defaults: the configured parameters. model: the model's name at the endpoint, put in place of
    the request's, or None.
    """

    def __init__(self, defaults: dict[str, Any], model: str | None) -> None:
        self._defaults = defaults
        self._model = model
        self._known = lru_cache(_MOST)(self._read)

    def of(self, params: pb.ResponseParams) -> CallSettings | None:
        """The settings of a call; None if the input is not a list of items, or not the only source
        of items.

        Raises CodecError for parameters that JSON can't represent.
        """
        if not params.input:
            return None
        bare = pb.ResponseParams()
        bare.CopyFrom(params)
        bare.ClearField("input")
        raw = bare.SerializeToString()
        return self._known(raw) if len(raw) <= _MOST_BYTES else self._read(raw)

    def _read(self, raw: bytes) -> CallSettings | None:
        """raw: parameters without their input, serialised: always alike, as they hold no map."""
        settings = settings_to_dict(pb.ResponseParams.FromString(raw))
        merged = merge_params(self._defaults, settings, self._model)
        # One that stands in the overlay, or is configured.
        return None if "input" in merged else CallSettings(merged)
