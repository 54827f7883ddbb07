"""What the servicers of one environment share."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.faults import shown_place
from gymmesh_runtime.instruments import GaugeChild
from gymmesh_runtime.stalls import NOTICED_S, note_stall

from ..config import EnvironmentConfig
from ..environment import Environment
from ..errors import TaskInvalid, WrongResult
from ..models import Models
from ..session import Session
from ..task import Task
from ..tools import Toolset
from .host import Host, exited, task_invalid
from .method import Method
from .sessions import SessionStore
from .unreadable import unreadable

__all__ = ["CLOSE_S", "Hosted"]

# Seconds that an environment may take to free one session.
CLOSE_S = 5.0

_LOGGER = logging.getLogger("gymmesh.resource")


@dataclass(slots=True, kw_only=True)
class Hosted:
    """An environment that is being served.

    in_order: calls of one session run one after another. verify_needs_session: a verdict needs
    the live session. multi_turn: the environment takes turns. judges_groups: the repeats of a
    task are judged together. asks_models: it may call models. checks_tasks, creates_state,
    closes_sessions: it has methods for that. open_sessions: the gauge.
    """

    name: str
    instance_id: str
    config: EnvironmentConfig
    environment: Environment[Any]
    tools: Toolset
    examples: Sequence[rollout_pb2.Task]
    host: Host
    models: Models
    clock: Callable[[], float] = time.monotonic
    sessions: SessionStore[Any] = field(init=False)
    in_order: bool = field(init=False)
    verify_needs_session: bool = field(init=False)
    multi_turn: bool = field(init=False)
    judges_groups: bool = field(init=False)
    asks_models: bool = field(init=False)
    checks_tasks: bool = field(init=False)
    creates_state: bool = field(init=False)
    closes_sessions: bool = field(init=False)
    open_sessions: GaugeChild = field(init=False)

    def __post_init__(self) -> None:
        environment = self.environment
        self.checks_tasks = self.defines("check_task")
        self.creates_state = self.defines("create_state")
        self.closes_sessions = self.defines("close_session")
        has_state = type(environment).state is not None or self.creates_state
        ordered, needed = environment.in_order, environment.verify_needs_session
        self.in_order = has_state if ordered is None else ordered
        self.verify_needs_session = has_state if needed is None else needed
        self.multi_turn = self.defines("next_turn")
        self.judges_groups = self.defines("verify_group")
        self.asks_models = bool(self.models)
        metrics.SESSIONS_LIMIT.labels(self.name).set(self.config.session_limit)
        self.open_sessions = metrics.SESSIONS_OPEN.labels(self.name)
        self.sessions = SessionStore(
            limit=self.config.session_limit,
            limit_each=self.config.session_limit_each,
            idle_s=self.config.session_idle_s,
            close=self.end_session,
            clock=self.clock,
        )

    def defines(self, method: str) -> bool:
        """Whether the author wrote this method, so that the default need not be called."""
        return getattr(type(self.environment), method) is not getattr(Environment, method)

    def method(self, method: Callable[..., Any], limit_s: float) -> Method:
        """A method of the environment, to be called in `limit_s` seconds."""
        return Method(self.host, method, limit_s, asks_models=self.asks_models)

    def check(self, task: Task) -> None:
        """Let the environment look at a task. Raises TASK_INVALID, ENVIRONMENT_FAULT."""
        try:
            task.check()
            if self.checks_tasks:
                self._check(task)
        except SystemExit as error:
            raise self._fault(exited(error), "check_task", task) from error
        except Exception as error:
            raise self._fault(error, "check_task", task) from error

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
            f"gave {type(answer).__name__}, which says nothing: raise TaskInvalid(key, problem) "
            "for a task that cannot be run, else return nothing",
            check,
        )

    async def new_session(
        self, session_id: str, task: Task, seed: int, rollout_id: str
    ) -> Session[Any]:
        """A session with fresh state. Raises TASK_INVALID, ENVIRONMENT_FAULT, QUEUE_FULL."""
        create, limit_s = self.environment.create_state, self.config.turn_timeout_s
        try:
            if self.creates_state:
                state = await self.host.call(create, task, seed, limit_s=limit_s)
            else:
                state = create(task, seed)
        except Exception as error:
            raise self._fault(error, "create_session", task) from error
        self.open_sessions.inc()
        return Session(session_id, task, seed, state, rollout_id, self.models)

    async def end_session(self, session: Session[Any]) -> None:
        """The environment's part of closing a session. Its faults harm nobody else."""
        self.open_sessions.dec()
        if not self.closes_sessions:
            return
        close = self.environment.close_session
        try:
            await self.host.call(close, session, limit_s=CLOSE_S)
        except Exception:
            _LOGGER.exception("environment %s failed while it closed a session", self.name)

    def _fault(self, error: Exception, stage: str, task: Task) -> MeshError:
        if isinstance(error, TaskInvalid):
            return task_invalid(error, self.name, task.id)
        return unreadable(error, self.name, task) or self.host.fault(error, stage)
