"""The library verifiers: a gymmesh environment as a v1 taskset, for its runner and for trainers on
it.

    vf-eval gymmesh-taskset --env.taskset.place 127.0.0.1:9500

verifiers finds the taskset by the id `gymmesh-taskset`, which is the module gymmesh_taskset. The
harness of verifiers samples, and calls the environment's tools over MCP. The session is in this
process or at an address, and the reward is the environment's verdict. Interface: verifiers 0.4,
`verifiers.v1`.

taskset      the tasks, and the verdict as their reward
environment  opens a session for each episode, and runs the environment's turns
sessions     a session: tools, turns, verdict
tool_calls   where the tool server, a separate process, reaches the sessions
toolset      that tool server (run as a module)
prompts      a task's prompt as messages (pure)
transcript   what a verifier judges, from a trace (pure)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gymmesh_trainers.verifiers.environment import MeshEnv as MeshEnv
    from gymmesh_trainers.verifiers.environment import MeshEnvConfig as MeshEnvConfig
    from gymmesh_trainers.verifiers.taskset import MeshTask as MeshTask
    from gymmesh_trainers.verifiers.taskset import MeshTaskset as MeshTaskset
    from gymmesh_trainers.verifiers.taskset import MeshTasksetConfig as MeshTasksetConfig

_HOME = {
    "MeshEnv": "environment",
    "MeshEnvConfig": "environment",
    "MeshTask": "taskset",
    "MeshTaskset": "taskset",
    "MeshTasksetConfig": "taskset",
}

__all__ = ["MeshEnv", "MeshEnvConfig", "MeshTask", "MeshTaskset", "MeshTasksetConfig"]


def __getattr__(name: str) -> Any:
    # Late, because what is pure here needs no verifiers.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
