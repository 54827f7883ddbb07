"""The base class of agents, whose coroutine `run` runs one rollout; and how an agent is found.

    class BestOfTwo(Agent):
        version = "1"
        roles = ("policy",)

        async def run(self, context: RolloutContext) -> Completion:
            ...

One instance serves all rollouts of a service concurrently, so keep the data of a rollout in local
variables. An agent does everything through its context (context.py). It does not open sessions,
send events or verify rollouts itself.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, ClassVar

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.loop import Completion, ContextExceeded, StopRollout
from gymmesh_runtime.config import named_module
from gymmesh_runtime.text.authors_code import described
from gymmesh_sandbox_access import SandboxSpec

__all__ = ["Agent", "Completion", "ContextExceeded", "StopRollout", "find_agent"]

GROUP = "gymmesh.agents"
# Known also where the package is on the path without being installed.
_BUILT_IN = {
    "choices": "gymmesh_agent.choices:ChoicesAgent",
    "program": "gymmesh_agent.programs.agent:ProgramAgent",
    "tool_loop": "gymmesh_agent.tool_loop:ToolLoopAgent",
}


class Agent(ABC):
    """The base class of every agent.

    Args:
        options: `options` of the agent's configuration. An agent with options overrides `__init__`.
            The base class raises ValueError for any option.

    Attributes:
        version: change it whenever rollouts may change.
        description: a few sentences for people.
        roles: the roles of the models that the agent calls; the model with the role `policy` is
            trained.
        sandboxes: the sandboxes that the agent opens itself, by role. Each is created on first use,
            and ends when `run` has returned. See `RolloutContext.sandboxes`.
        runs_programs: whether the agent runs programs that call the model through
            `context.gateway()`. The gateway then opens, and the registry lists it, before the first
            rollout.
        scores: whether the agent lets the policy score the task's choices
            (`RolloutContext.choose`). The service then refuses to start with a model that can't
            score.
    """

    version: ClassVar[str] = "1"
    description: ClassVar[str] = ""
    roles: ClassVar[tuple[str, ...]] = ("policy",)
    sandboxes: ClassVar[Mapping[str, SandboxSpec]] = MappingProxyType({})
    runs_programs: ClassVar[bool] = False
    scores: ClassVar[bool] = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        if options:
            unknown = ", ".join(sorted(options))
            raise ValueError(f"{type(self).__name__} has no options; remove: {unknown}")

    @property
    def program_sandbox(self) -> str:
        """The role of the session's sandbox in which the agent runs a program that calls the
        gateway; empty: there is no such program.
        """
        return ""

    @property
    def wants_play(self) -> bool:
        """Whether the agent lets environments play their episodes themselves."""
        return False

    async def program_of(self, context: RolloutContext) -> rollout_pb2.Program | None:
        """The program that runs as the agent, for the rollout's first event; None: no program.
        The service calls this before `run`, when the session is open.
        """
        return None

    @abstractmethod
    async def run(self, context: RolloutContext) -> Completion:
        """Run one rollout, from its open session to the point where it is judged.

        Do not catch errors of the context: each of them is attributed to the service that failed.
        Any other exception is a fault of the agent (AGENT_FAULT).
        """


def find_agent(use: str) -> type[Agent]:
    """The agent class that `use` names: an entry point of the group `gymmesh.agents`,
    `package.module:Class`, or `folder/file.py:Class` for a class that can't be imported by name.

    Raises:
        ValueError: there is no such class, or it is not an Agent. The message names the most
            similar name.
    """
    found = _load_path(use, use) if ":" in use else _load_named(use)
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise ValueError(f"use: {use!r} is not an agent class; derive the class from gymmesh.Agent")
    return found


def _load_named(use: str) -> Any:
    for point in entry_points(group=GROUP, name=use):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"use: {use!r} ({point.value}) cannot be imported: {error}") from None
    if use in _BUILT_IN:
        return _load_path(_BUILT_IN[use], use)
    known = sorted({*_BUILT_IN, *entry_points(group=GROUP).names})
    near = difflib.get_close_matches(use, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known agents: {', '.join(known)}."
    raise ValueError(
        f"use: there is no agent {use!r}; {hint} Give a class of your own as 'module:Class' "
        "or 'folder/file.py:Class'"
    )


def _load_path(path: str, use: str) -> Any:
    module_name, _, attribute = path.rpartition(":")
    try:
        return getattr(named_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError, OSError) as error:
        raise ValueError(f"use: {use!r} cannot be imported: {error}") from None
    except BaseException as error:
        raise ValueError(f"use: {use!r} cannot be imported: {described(error)}") from error
