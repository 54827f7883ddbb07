"""The agent service: runs a model and an environment's tools, turn by turn.

Authors of agents subclass `Agent` and write `run`, which receives a `RolloutContext`.

One rollout, file by file: service.py receives the request, and plan.py reads it. attempt.py runs
it, with environment/session.py, context.py, environment_calls.py, model/ and
environment/verification.py. events.py sends each step.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymmesh_runtime as _settings  # noqa: F401  # before gRPC is loaded

if TYPE_CHECKING:
    from gymmesh_agent.agent import Agent as Agent
    from gymmesh_agent.agent import Completion as Completion
    from gymmesh_agent.agent import ContextExceeded as ContextExceeded
    from gymmesh_agent.agent import StopRollout as StopRollout
    from gymmesh_agent.config import AgentConfig as AgentConfig
    from gymmesh_agent.context import RolloutContext as RolloutContext
    from gymmesh_agent.environment_calls import ToolAnswer as ToolAnswer
    from gymmesh_agent.environment_calls import TurnAnswer as TurnAnswer
    from gymmesh_agent.gateway.gateway import SideCallRule as SideCallRule
    from gymmesh_agent.model import ModelCall as ModelCall
    from gymmesh_agent.service import AgentService as AgentService

_HOME = {
    "Agent": "agent",
    "AgentConfig": "config",
    "AgentService": "service",
    "Completion": "agent",
    "ContextExceeded": "agent",
    "ModelCall": "model.answer",
    "RolloutContext": "context",
    "SideCallRule": "gateway.gateway",
    "StopRollout": "agent",
    "ToolAnswer": "environment_calls",
    "TurnAnswer": "environment_calls",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: a process that reads a configuration needs no agent.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
