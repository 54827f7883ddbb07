"""gymmesh: tasks in, verified agent rollouts out.

One import for people who write environments and agents or collect rollouts from Python:

    from gymmesh import Environment, Rollout, Session, tool
    from gymmesh import Agent, Completion, RolloutContext
    from gymmesh import Collector, embedded, load_config
    from gymmesh import TokenBackend, collect, run_one

Each name is imported from the room that defines it when it is first used, so `import gymmesh`
loads nothing else, and neither do the stubs beside this file: the packages `gymmesh.<noun>.v1`,
which tools/generate.py makes from the contract. No room of gymmesh itself imports from here.
"""

TYPE_CHECKING = False  # not from typing: this file imports nothing at all
if TYPE_CHECKING:
    from gymmesh_agent import (
        Agent,
        Completion,
        ContextExceeded,
        ModelCall,
        RolloutContext,
        SideCallRule,
        StopRollout,
        ToolAnswer,
        TurnAnswer,
    )
    from gymmesh_client import (
        CollectOptions,
        Collector,
        FailedAttempt,
        Group,
        OpenOptions,
        OutputFiles,
        RunIdentity,
        RunOutput,
        TaskDefaults,
        TaskReader,
        completed_row,
        open_run,
        open_trace,
        run_attempt,
    )
    from gymmesh_client.tasks import TaskFile
    from gymmesh_mesh import Mesh, MeshConfig, connect, discovered, embedded, remote, up
    from gymmesh_resource import (
        Component,
        DefinitionError,
        Environment,
        Expected,
        Image,
        Member,
        ModelAnswer,
        ModelEndpoint,
        Outcome,
        Pending,
        ResourceService,
        Rollout,
        Session,
        Skipped,
        Task,
        TaskInvalid,
        ToolCall,
        ToolError,
        Transcript,
        Turn,
        Verdict,
        reward,
        tool,
    )
    from gymmesh_responses import new_message, params_from_json, text_of
    from gymmesh_runtime.config import ConfigError, load_config
    from gymmesh_runtime.errors import MeshError
    from gymmesh_runtime.security import SecurityConfig, TlsConfig
    from gymmesh_sandbox_access import SandboxClient, SandboxHandle, SandboxSpec
    from gymmesh_trainers import (
        Generation,
        Mix,
        RolloutFailed,
        RolloutGroup,
        SamplingParams,
        ScriptedBackend,
        Stages,
        SyncCollector,
        TaskSet,
        TokenBackend,
        TrainerCollector,
        advantages,
        collect,
        collect_sync,
        pass_rate,
        run_one,
        spread,
    )

__all__ = [
    "Agent",
    "CollectOptions",
    "Collector",
    "Completion",
    "Component",
    "ConfigError",
    "ContextExceeded",
    "DefinitionError",
    "Environment",
    "Expected",
    "FailedAttempt",
    "Generation",
    "Group",
    "Image",
    "Member",
    "Mesh",
    "MeshConfig",
    "MeshError",
    "Mix",
    "ModelAnswer",
    "ModelCall",
    "ModelEndpoint",
    "OpenOptions",
    "Outcome",
    "OutputFiles",
    "Pending",
    "ResourceService",
    "Rollout",
    "RolloutContext",
    "RolloutFailed",
    "RolloutGroup",
    "RunIdentity",
    "RunOutput",
    "SamplingParams",
    "SandboxClient",
    "SandboxHandle",
    "SandboxSpec",
    "ScriptedBackend",
    "SecurityConfig",
    "Session",
    "SideCallRule",
    "Skipped",
    "Stages",
    "StopRollout",
    "SyncCollector",
    "Task",
    "TaskDefaults",
    "TaskFile",
    "TaskInvalid",
    "TaskReader",
    "TaskSet",
    "TlsConfig",
    "TokenBackend",
    "ToolAnswer",
    "ToolCall",
    "ToolError",
    "TrainerCollector",
    "Transcript",
    "Turn",
    "TurnAnswer",
    "Verdict",
    "advantages",
    "collect",
    "collect_sync",
    "completed_row",
    "connect",
    "discovered",
    "embedded",
    "load_config",
    "new_message",
    "open_run",
    "open_trace",
    "params_from_json",
    "pass_rate",
    "remote",
    "reward",
    "run_attempt",
    "run_one",
    "spread",
    "text_of",
    "tool",
    "up",
]

if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    _HOMES = {
        "gymmesh_agent": (
            "Agent",
            "Completion",
            "ContextExceeded",
            "ModelCall",
            "RolloutContext",
            "SideCallRule",
            "StopRollout",
            "ToolAnswer",
            "TurnAnswer",
        ),
        "gymmesh_client": (
            "CollectOptions",
            "Collector",
            "FailedAttempt",
            "Group",
            "OutputFiles",
            "OpenOptions",
            "RunIdentity",
            "RunOutput",
            "TaskDefaults",
            "TaskReader",
            "completed_row",
            "open_run",
            "open_trace",
            "run_attempt",
        ),
        "gymmesh_client.tasks": ("TaskFile",),
        "gymmesh_mesh": ("Mesh", "MeshConfig", "connect", "discovered", "embedded", "remote", "up"),
        "gymmesh_resource": (
            "Component",
            "DefinitionError",
            "Environment",
            "Expected",
            "Image",
            "Member",
            "ModelAnswer",
            "ModelEndpoint",
            "Outcome",
            "Pending",
            "ResourceService",
            "Rollout",
            "Session",
            "Skipped",
            "Task",
            "TaskInvalid",
            "ToolCall",
            "ToolError",
            "Transcript",
            "Turn",
            "Verdict",
            "reward",
            "tool",
        ),
        "gymmesh_responses": ("new_message", "params_from_json", "text_of"),
        "gymmesh_runtime.config": ("ConfigError", "load_config"),
        "gymmesh_runtime.errors": ("MeshError",),
        "gymmesh_runtime.security": ("SecurityConfig", "TlsConfig"),
        "gymmesh_sandbox_access": ("SandboxClient", "SandboxHandle", "SandboxSpec"),
        "gymmesh_trainers": (
            "Generation",
            "Mix",
            "RolloutFailed",
            "RolloutGroup",
            "SamplingParams",
            "ScriptedBackend",
            "Stages",
            "SyncCollector",
            "TaskSet",
            "TokenBackend",
            "TrainerCollector",
            "advantages",
            "collect",
            "collect_sync",
            "pass_rate",
            "run_one",
            "spread",
        ),
    }
    _HOME = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(globals().keys() | _HOME.keys())
