"""Makes the backend of a model from its configuration."""

from __future__ import annotations

import importlib
from typing import Final

from gymmesh_model.backends import BACKENDS
from gymmesh_model.backends.base import Backend
from gymmesh_model.config import ModelConfig

# The server or engine that the backend `vllm` runs itself.
_VLLM_ENGINE: Final = "gymmesh_model.backends.vllm.engine:EngineVllmBackend"
_VLLM_SERVE: Final = "gymmesh_model.backends.vllm.managed:ManagedVllmBackend"


def make_backend(name: str, config: ModelConfig) -> Backend:
    """The backend that `config` names, not opened yet; `name` is the model's in the mesh.

    Raises ConfigError for options that the backend does not have.
    """
    if config.serve is not None:
        place = _VLLM_SERVE
    elif config.engine is not None:
        place = _VLLM_ENGINE
    else:
        place = BACKENDS[config.backend]
    module, _, attribute = place.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)(name, config)
    return backend
