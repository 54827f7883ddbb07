"""Makes the backend of a model from its configuration."""

from __future__ import annotations

from typing import Any, Final

from gymmesh_model.backends.base import Backend
from gymmesh_model.backends.facts import backend_class
from gymmesh_model.config import ModelConfig

# The server or engine that the backend `vllm` runs itself.
_VLLM_ENGINE: Final = "gymmesh_model.backends.vllm.engine:EngineVllmBackend"
_VLLM_SERVE: Final = "gymmesh_model.backends.vllm.managed:ManagedVllmBackend"


def make_backend(name: str, config: ModelConfig) -> Backend:
    """The backend that `config` names, not opened yet; `name` is the model's in the mesh.

    Raises ConfigError for options that the backend does not have.
    """
    kind: Any
    if config.serve is not None:
        kind = backend_class(_VLLM_SERVE)
    elif config.engine is not None:
        kind = backend_class(_VLLM_ENGINE)
    else:
        kind = backend_class(config.backend)
    backend: Backend = kind(name, config)
    return backend
