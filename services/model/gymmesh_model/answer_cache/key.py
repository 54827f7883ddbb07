"""What makes two calls the same to the response cache: a pure function."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from gymmesh_model.backends.base import BackendCall
from gymmesh_model.config import ModelConfig
from gymmesh_model.routing import identity

# Goes up whenever a backend begins to send something else for the same parameters, or to read
# the same answer differently: what was kept before is not found any more.
DIALECT: Final = 1


class AnswerKeys:
    """The keys of one model's calls.

    What decides is all that reaches the model: parameters, seed, backend, its options and
    endpoints, the model's name there, and the version of the weights. Whose call it is does not.
    """

    def __init__(self, config: ModelConfig, endpoint_model: str) -> None:
        self._sampled = config.cache is not None and config.cache.any_temperature
        self._fixed = {
            "dialect": DIALECT,
            "backend": config.backend,
            "endpoints": sorted(identity(base) for base in config.bases),
            "endpoint_model": endpoint_model,
            "options": config.options,
        }

    def key(self, call: BackendCall, weights_version: int | None) -> str | None:
        """64 hex digits; None for a call that must be made.

        That is one with tokens to capture, which are those of a call that was made, and one that
        is sampled, unless the configuration allows it.
        """
        if call.record is not None or call.prefix is not None:
            return None
        if not self._sampled and call.params.get("temperature") != 0:
            return None
        asked: dict[str, Any] = {
            **self._fixed,
            "params": {key: value for key, value in call.params.items() if value is not None},
            "seed": call.seed,
            "weights": weights_version,
        }
        # Sorted and in ASCII, so that the same document is the same bytes, lone surrogates too.
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
