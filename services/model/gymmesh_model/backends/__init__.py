"""The backends, one per file, each imported only when a model asks for it by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the configuration knows a backend by its name in this file
    from gymmesh_model.backends.base import Backend
    from gymmesh_model.config import ModelConfig

__all__ = ["BACKENDS", "make_backend"]

BACKENDS: Final = {
    "azure": "gymmesh_model.backends.azure:AzureBackend",
    "chat": "gymmesh_model.backends.chat:ChatBackend",
    "local": "gymmesh_model.backends.local:LocalBackend",
    "openai": "gymmesh_model.backends.openai:OpenAIBackend",
    "replay": "gymmesh_model.backends.replay:ReplayBackend",
    "responses": "gymmesh_model.backends.responses:ResponsesBackend",
    "vllm": "gymmesh_model.backends.vllm.backend:VllmBackend",
}
"""Module and class by the name that configurations use."""

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
