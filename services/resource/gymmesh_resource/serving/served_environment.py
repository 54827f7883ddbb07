"""An environment that is being served: what its two servicers share."""

from __future__ import annotations

import inspect
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import WrongResult
from gymmesh_resource.model_access import Models
from gymmesh_resource.registry import example_tasks, named_object, source_digest
from gymmesh_resource.rewards import Rewards
from gymmesh_resource.serving import metrics
from gymmesh_resource.serving.environment_method import Method
from gymmesh_resource.serving.faults import callers_fault, environment_fault
from gymmesh_resource.serving.final_state import (
    refuse_new_sandboxes,
    refuse_unneeded_session,
)
from gymmesh_resource.serving.sessions import SessionStore
from gymmesh_resource.session import JudgedSession, Session
from gymmesh_resource.session_sandboxes import SessionSandboxes
from gymmesh_resource.task import Task
from gymmesh_resource.tools import Toolset
from gymmesh_resource.workers import Threads
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.telemetry.stalls import NOTICED_S, note_stall
from gymmesh_runtime.text import shown_place, shown_traceback
from gymmesh_runtime.text.authors_code import as_exception
from gymmesh_sandbox_access import RolloutAgent, SandboxServices

#: Seconds that an environment may take to free one session.
CLOSE_S: Final = 5.0
# What an author may write that opening a session awaits.
_OPENING: Final = ("create_state", "session_tools", "opening")
_OTHER_TOOLS: Final = ("session_tools", "call_other")
# As many as JSON readers keep.
_SEED_BITS: Final = 53

_LOGGER = logging.getLogger("gymmesh.resource")


class ServedEnvironment:
    """An environment with its tools and models, its sessions and the threads it runs in.

    Raises DefinitionError, ConfigError.
    """

    def __init__(
        self,
        environment: Environment[Any],
        config: EnvironmentConfig,
        name: str,
        instance_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.environment = environment
        self.config = config
        self.name = name
        self.instance_id = instance_id
        self.tools = Toolset(environment, environment.types_by_tool())
        self.examples = example_tasks(environment, name)
        self.models = Models(
            name,
            needed=environment.called_models(),
            declared=environment.models,
            mapped=config.models,
        )
        declared = environment.declared_sandboxes().values()
        self.sandboxes = SandboxServices(
            "environment", name, environment.sandbox_services(config.sandboxes), config.sandboxes
        )
        self.rewards = Rewards(environment, config.rewards, named_object)
        self.threads = Threads(config.threads)
        self.source_digest = source_digest(type(environment))
        self._checks_tasks = self.defines("check_task")
        self._creates_state = self.defines("create_state")
        self._closes_sessions = self.defines("close_session")
        self.has_state = has_state = type(environment).state is not None or self._creates_state
        in_order, needed = environment.in_order, environment.verify_needs_session
        self.plays = environment.plays
        # Whether calls change what later calls find: state, or files in a sandbox.
        lasting = has_state or bool(self.sandboxes)
        self.in_order = lasting if in_order is None else in_order
        self.verify_needs_session = lasting if needed is None else needed
        self.multi_turn = environment.multi_turn
        # Whether a rollout may change its session's state.
        self.changes_state = has_state and (
            bool(self.tools)
            or self.multi_turn
            or self.plays
            or any(map(self.defines, _OTHER_TOOLS))
        )
        if self.changes_state and not self.verify_needs_session:
            refuse_unneeded_session(environment)
        if any(spec.lent for spec in declared):
            refuse_new_sandboxes(environment, self.verify_needs_session)
        keep = environment.keep_state if config.keep_state is None else config.keep_state
        self.keeps_state = has_state and (self.verify_needs_session if keep is None else keep)
        self.judges_groups = self.defines("verify_group")
        self.calls_models = bool(self.models)
        self._create_state = self.method(environment.create_state, config.turn_timeout_s)
        self._close_session = self.method(environment.close_session, CLOSE_S)
        metrics.SESSIONS_LIMIT.labels(name).set(config.session_limit)
        self._open_sessions = metrics.SESSIONS_OPEN.labels(name)
        self.sessions: SessionStore[Any] = SessionStore(
            config,
            in_order=self.in_order,
            opens_at_once=not (self.sandboxes or any(map(self.defines, _OPENING))),
            closes_at_once=not (self.sandboxes or self._closes_sessions),
            close=self.end_session,
            works=_works_in_sandboxes if self.sandboxes else None,
            clock=clock,
        )

    def verifier_version(self, compat: str) -> str:
        """The version of the verdicts that follow a reference; empty: of the right ones."""
        environment = self.environment
        version = environment.verifier_version or environment.version
        return f"{version}+{compat}" if compat else version

    def defines(self, method: str) -> bool:
        """Whether the author wrote this method, so that the default need not be called."""
        return getattr(type(self.environment), method) is not getattr(Environment, method)

    def method(self, function: Callable[..., Any], limit_s: float) -> Method:
        """A method of the environment, which may take `limit_s` seconds."""
        return Method(
            function,
            limit_s,
            environment=self.name,
            threads=self.threads,
            calls_models=self.calls_models,
        )

    def check(self, task: Task) -> None:
        """Have the environment check a task. Raises TASK_INVALID, ENVIRONMENT_FAULT."""
        try:
            task.check()
            self.rewards.check(task)
            self.environment.compat_of(task)
            if self._checks_tasks:
                self._check(task)
        except BaseException as error:
            raise self._fault(as_exception(error), "check_task", task) from error

    def _check(self, task: Task) -> None:
        check = self.environment.check_task
        started = time.perf_counter()
        answer: object = check(task)  # authors write anything
        took = time.perf_counter() - started
        if took > NOTICED_S:
            code = getattr(check, "__code__", None)
            place = shown_place(code.co_filename, code.co_firstlineno) if code else ""
            note_stall(self.name, check.__qualname__, place, took)
        if answer is None:
            return
        if inspect.iscoroutine(answer):
            answer.close()
        raise WrongResult(
            f"returned {type(answer).__name__}. Raise TaskInvalid(key, problem) for a task that "
            "can't run, otherwise return None",
            check,
        )

    async def new_session(
        self,
        session_id: str,
        task: Task,
        seed: int,
        rollout_id: str,
        attempt: int = 0,
        agent: RolloutAgent | None = None,
    ) -> Session[Any]:
        """A session with fresh state. Raises TASK_INVALID, ENVIRONMENT_FAULT, QUEUE_FULL."""
        return Session(*await self._parts(session_id, task, seed, rollout_id, attempt, agent))

    async def judged_session(self, task: Task, seed: int, rollout_id: str) -> JudgedSession[Any]:
        """A session to judge a rollout in whose own is gone. Raises as `new_session`."""
        session = JudgedSession[Any](*await self._parts("", task, seed, rollout_id))
        if self.verify_needs_session:
            session.sandboxes.gone = type(self.environment).__name__
        return session

    async def _parts(
        self,
        session_id: str,
        task: Task,
        seed: int,
        rollout_id: str,
        attempt: int = 0,
        agent: RolloutAgent | None = None,
    ) -> tuple[str, Task, int, Any, str, Models, SessionSandboxes]:
        """What a session is made of, once its state is."""
        try:
            specs = self.environment.sandbox_specs(task) if self.sandboxes else {}
            sandboxes = SessionSandboxes(self.sandboxes, specs, rollout_id, attempt, agent)
            if self._creates_state:
                state = await self._create_state.call((task, seed))
            else:
                state = self.environment.create_state(task, seed)
        except Exception as error:
            raise self._fault(error, "create_session", task) from error
        self._open_sessions.inc()
        return session_id, task, seed, state, rollout_id, self.models, sandboxes

    async def end_session(self, session: Session[Any]) -> None:
        """The environment's part of closing a session; its faults are logged."""
        self._open_sessions.dec()
        try:
            if self._closes_sessions:
                await self._close_session.call((session,))
        except Exception as error:
            shown = shown_traceback(error)
            message = "environment %s failed while it closed a session"
            _LOGGER.error(message, self.name, exc_info=shown)
        finally:
            if self.sandboxes:
                await session.sandboxes.end()

    def _fault(self, error: Exception, stage: str, task: Task) -> MeshError:
        fault = callers_fault(error, self.name, task)
        return fault or environment_fault(error, self.name, stage)


async def _works_in_sandboxes(session: Session[Any]) -> bool:
    """Whether the agent works in what it was lent."""
    return await session.sandboxes.worked_in()


def seed_of(task: rollout_pb2.Task) -> int:
    """The task's seed, or else a new one."""
    return task.seed if task.HasField("seed") else secrets.randbits(_SEED_BITS)
