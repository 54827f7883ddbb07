"""The resource service: environments, their sessions and verifiers.

For authors of environments: subclass `Environment`, mark methods with `@tool`, write `verify`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import EnvironmentConfig as EnvironmentConfig
    from .environment import Environment as Environment
    from .environment import Turn as Turn
    from .errors import DefinitionError as DefinitionError
    from .errors import TaskInvalid as TaskInvalid
    from .errors import ToolError as ToolError
    from .expected import Expected as Expected
    from .models import ModelAnswer as ModelAnswer
    from .rewards import reward as reward
    from .rollout import Member as Member
    from .rollout import Rollout as Rollout
    from .rollout import ToolCall as ToolCall
    from .rollout import Transcript as Transcript
    from .service import ResourceService as ResourceService
    from .session import Session as Session
    from .task import Task as Task
    from .tools import tool as tool
    from .verdicts import Component as Component
    from .verdicts import Outcome as Outcome
    from .verdicts import Pending as Pending
    from .verdicts import Skipped as Skipped
    from .verdicts import Verdict as Verdict

_NAMES = {
    "config": ("EnvironmentConfig",),
    "environment": ("Environment", "Turn"),
    "errors": ("DefinitionError", "TaskInvalid", "ToolError"),
    "expected": ("Expected",),
    "models": ("ModelAnswer",),
    "rewards": ("reward",),
    "rollout": ("Member", "Rollout", "ToolCall", "Transcript"),
    "service": ("ResourceService",),
    "session": ("Session",),
    "task": ("Task",),
    "tools": ("tool",),
    "verdicts": ("Component", "Outcome", "Pending", "Skipped", "Verdict"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    # Late, because worker processes import modules of this package and need no gRPC for that.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
