"""The resource service: environments, their sessions and verifiers.

For authors of environments: subclass `Environment`, mark methods with `@tool`, write `verify`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymmesh_resource.config import EnvironmentConfig as EnvironmentConfig
    from gymmesh_resource.environment import Environment as Environment
    from gymmesh_resource.environment import Turn as Turn
    from gymmesh_resource.errors import DefinitionError as DefinitionError
    from gymmesh_resource.errors import TaskInvalid as TaskInvalid
    from gymmesh_resource.errors import ToolError as ToolError
    from gymmesh_resource.expected import Expected as Expected
    from gymmesh_resource.model_access import ModelAnswer as ModelAnswer
    from gymmesh_resource.model_endpoint import ModelEndpoint as ModelEndpoint
    from gymmesh_resource.rewards.marking import reward as reward
    from gymmesh_resource.rollout import Member as Member
    from gymmesh_resource.rollout import Rollout as Rollout
    from gymmesh_resource.rollout import ToolCall as ToolCall
    from gymmesh_resource.rollout import Transcript as Transcript
    from gymmesh_resource.service import ResourceService as ResourceService
    from gymmesh_resource.session import Session as Session
    from gymmesh_resource.task import Task as Task
    from gymmesh_resource.tools import Image as Image
    from gymmesh_resource.tools import tool as tool
    from gymmesh_resource.verdicts import Component as Component
    from gymmesh_resource.verdicts import Outcome as Outcome
    from gymmesh_resource.verdicts import Pending as Pending
    from gymmesh_resource.verdicts import Skipped as Skipped
    from gymmesh_resource.verdicts import Verdict as Verdict
    from gymmesh_sandbox_access import ExecResult as ExecResult
    from gymmesh_sandbox_access import SandboxClient as SandboxClient
    from gymmesh_sandbox_access import SandboxHandle as SandboxHandle
    from gymmesh_sandbox_access import SandboxSpec as SandboxSpec

_NAMES = {
    ".config": ("EnvironmentConfig",),
    ".environment": ("Environment", "Turn"),
    ".errors": ("DefinitionError", "TaskInvalid", "ToolError"),
    ".expected": ("Expected",),
    ".model_access": ("ModelAnswer",),
    ".model_endpoint": ("ModelEndpoint",),
    ".rewards.marking": ("reward",),
    ".rollout": ("Member", "Rollout", "ToolCall", "Transcript"),
    ".service": ("ResourceService",),
    ".session": ("Session",),
    ".task": ("Task",),
    ".tools": ("Image", "tool"),
    ".verdicts": ("Component", "Outcome", "Pending", "Skipped", "Verdict"),
    # The client of sandboxes, which agents use as well.
    "gymmesh_sandbox_access": ("ExecResult", "SandboxClient", "SandboxHandle", "SandboxSpec"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    # Late, because worker processes import modules of this package and need no gRPC for that.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name], __name__), name)
