"""The backends, one per file, each imported only when a model asks for it by name."""

from __future__ import annotations

import importlib
from typing import Final

from gymmesh_model.backends.base import Backend
from gymmesh_model.config import ModelConfig

__all__ = ["Backend", "make_backend"]

_CLASSES: Final = {
    "azure": "gymmesh_model.backends.azure:AzureBackend",
    "chat": "gymmesh_model.backends.chat:ChatBackend",
    "local": "gymmesh_model.backends.local:LocalBackend",
    "openai": "gymmesh_model.backends.openai:OpenAIBackend",
    "replay": "gymmesh_model.backends.replay:ReplayBackend",
    "responses": "gymmesh_model.backends.responses:ResponsesBackend",
    "vllm": "gymmesh_model.backends.vllm:VllmBackend",
    "vllm engine": "gymmesh_model.backends.vllm_engine:EngineVllmBackend",
    "vllm serve": "gymmesh_model.backends.vllm_managed:ManagedVllmBackend",
}


def make_backend(name: str, config: ModelConfig) -> Backend:
    """The backend that `config` names, not opened yet; `name` is the model's in the mesh.

    Raises ConfigError for options that the backend does not have.
    """
    which: str = config.backend
    if config.serve is not None:
        which = "vllm serve"
    elif config.engine is not None:
        which = "vllm engine"
    module, _, attribute = _CLASSES[which].partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)(name, config)
    return backend
