"""The model service: one model behind the Responses contract.

`ModelService(config, name, instance_id)` serves what `ModelConfig` describes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymmesh_model.config import ModelConfig as ModelConfig
    from gymmesh_model.service import ModelService as ModelService

_HOME = {"ModelConfig": "config", "ModelService": "service"}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: a process that reads a configuration needs no model.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
