"""The task as it is evaluated: its solver and its scorers in the hands of sessions."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import os
import sys
import tempfile
import traceback
from collections import Counter
from typing import Any

import anyio
import inspect_ai
from inspect_ai import Task, enqueue_sample, eval_async, task_with
from inspect_ai._eval.loader import load_tasks, resolve_task_sandbox
from inspect_ai._eval.task.sample_source import SampleSource
from inspect_ai._util.exception import TerminateSampleError
from inspect_ai.dataset import Sample
from inspect_ai.hooks import Hooks, SampleScoring, hooks
from inspect_ai.log import EvalSample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target
from inspect_ai.solver import Solver, TaskState, chain
from inspect_ai.solver import solver as named_solver
from inspect_ai.solver._task_state import sample_state
from inspect_ai.util import LimitExceededError, SandboxEnvironmentSpec

from gymmesh_resource.environments.inspect.peer.models import (
    MOST_AT_ONCE,
    AgentPlayed,
    JudgeApi,
    SessionModel,
    activate,
)
from gymmesh_resource.environments.inspect.peer.sandboxes import SANDBOX_TYPE
from gymmesh_resource.environments.inspect.peer.session import (
    RUNNING,
    SampleFailed,
    SampleSession,
    current_session,
    settle,
)

_LIMITS = (
    "message_limit",
    "token_limit",
    "turn_limit",
    "time_limit",
    "working_limit",
    "cost_limit",
)
_RETRIES = 3  # of a model call, where the task does not say; Inspect's own default has no end


class TaskEvaluation(SampleSource):
    """A task, and the evaluation of it that takes samples as sessions open.

    ours: whether our agent plays rather than the task's solver. about: what is known of the task.
    """

    def __init__(self, task: Task, model: SessionModel, params: dict[str, Any]) -> None:
        self.model = model
        self.ours = params["solver"] == "ours"
        self.judge = bool(params["judge"])
        self.sandbox = resolve_task_sandbox(task, None)
        self.samples = _unique_samples(task, params["limit"])
        self.solver = _whole_solver(task)
        self.sessions: dict[str, SampleSession] = {}
        self.about = {
            "name": task.name,
            "version": str(task.version),
            "inspect": inspect_ai.__version__,
            "samples": len(self.samples),
            "epochs": task.epochs or 1,
            "limits": [name for name in _LIMITS if getattr(task, name) is not None],
        }
        self._epochs: Counter[str] = Counter()
        self._added = asyncio.Event()
        self._ready = asyncio.Event()
        self._context: contextvars.Context | None = None
        retries = _RETRIES if task.config.max_retries is None else task.config.max_retries
        self._task = task_with(
            task,
            dataset=self,
            model=None,
            setup=None,
            solver=_playing(self),
            scorer=[_scoring(scorer) for scorer in task.scorer or []],
            sandbox=None,
            early_stopping=None,
            config=task.config.merge(GenerateConfig(max_retries=retries)),
            **(dict.fromkeys(_LIMITS) if self.ours else {}),
        )

    async def next_samples(self) -> list[Sample] | None:
        """Called while no sample runs; those that were added meanwhile are already queued."""
        self._context = self._context or contextvars.copy_context()
        self._ready.set()
        await self._added.wait()
        self._added.clear()
        return []

    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        """A sample ended, well or not."""
        if session := RUNNING.pop((str(sample.id), sample.epoch), None):
            session.end(sample)
        return None

    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        """A sample never ran."""
        if session := RUNNING.pop((str(sample.id), epoch), None):
            session.end(None)
        return None

    async def add(self, session: SampleSession) -> None:
        """Start a session's sample, as a further epoch of it."""
        await self._ready.wait()
        assert self._context is not None, "ready"
        sample = session.sample.model_copy(deep=True)
        if session.sandboxes:
            sample.sandbox = SandboxEnvironmentSpec(SANDBOX_TYPE)
        key = str(sample.id)
        self._epochs[key] += 1
        RUNNING[key, self._epochs[key]] = session
        self._context.run(functools.partial(enqueue_sample, sample, epoch=self._epochs[key]))
        self._added.set()

    async def run(self) -> None:
        """Evaluate for ever. An evaluation that ends has failed, and the process ends with it."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                logs = await eval_async(
                    self._task,
                    model=self.model,
                    log_dir=folder,
                    log_samples=False,
                    log_realtime=False,
                    score_display=False,
                    fail_on_error=False,
                    ctl_server=False,
                    acp_server=False,
                    max_samples=MOST_AT_ONCE,
                )
            sys.stderr.write(f"the evaluation ended: {[log.error for log in logs]}\n")
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)


def load_task(params: dict[str, Any]) -> TaskEvaluation:
    """The task that `params` name. Raises what its file does, and ValueError."""
    model = SessionModel()
    activate(model)
    tasks = load_tasks([params["task"]], params["args"])
    if len(tasks) != 1:
        names = ", ".join(task.name for task in tasks) or "none"
        raise ValueError(
            f"the option 'task' must name exactly one task, such as file.py@task, but names "
            f"{len(tasks)}: {names}"
        )
    if tasks[0].sample_source is not None:
        raise ValueError("the task creates its samples at run time, so gymmesh can't list them")
    return TaskEvaluation(tasks[0], model, params)


def _unique_samples(task: Task, limit: int | None) -> dict[str, Sample]:
    """The samples by id; those without one get their number, as in Inspect. Raises ValueError."""
    samples: dict[str, Sample] = {}
    for number, sample in enumerate(itertools.islice(task.dataset, limit), start=1):
        if sample.id is None:
            sample.id = number
        if str(sample.id) in samples:
            raise ValueError(f"two samples of the task have the id {sample.id!r}")
        samples[str(sample.id)] = sample
    return samples


def _whole_solver(task: Task) -> Solver:
    """The task's setup and its solver."""
    setup = task.setup if isinstance(task.setup, list | tuple) else [task.setup]
    steps = [step for step in setup if step is not None]
    return chain([*steps, task.solver]) if steps else task.solver


def _playing(evaluation: TaskEvaluation) -> Solver:
    """The task's setup and solver, cancellable. Where our agent plays, it plays in place of the
    first call of the model, and what follows in the solver sees its messages.
    """

    async def ours(state: TaskState, _generate: Any) -> TaskState:
        session = _session()

        async def hand_over(state: TaskState, *_args: Any, **_named: Any) -> TaskState:
            if session.opened.done():
                raise AgentPlayed
            await session.hand_over(state.messages, state.tools, submits=False)
            session.put(state)
            return state

        with anyio.CancelScope() as session.scope:
            try:
                state = await evaluation.solver(state, hand_over)
                return state if session.output is not None else await hand_over(state)
            except Exception as error:
                if session.output is None:
                    session.failure = SampleFailed(f"{type(error).__name__}: {error}")
                    settle(session.opened, session.failure)
                    raise session.failure from error
                # What the solver makes of the end of our agent's episode does not count.
                state = sample_state() or state
                session.put(state)
                return state
        session.failure = SampleFailed("the session was closed")
        raise session.failure

    async def own(state: TaskState, generate: Any) -> TaskState:
        session = _session()
        with anyio.CancelScope() as session.scope:
            try:
                return await evaluation.solver(state, generate)
            except Exception as error:
                if not _fails(error):
                    raise
                settle(session.played, SampleFailed(f"{type(error).__name__}: {error}"))
        # The rollout fails, or a limit of the policy ended it: then there is a verdict on the rest.
        await asyncio.wait([session.judged])
        if session.closed:
            session.failure = SampleFailed("the session was closed")
            raise session.failure
        return sample_state() or state

    @named_solver(name="gymmesh")
    def playing() -> Solver:
        return ours if evaluation.ours else own

    return playing()


def _scoring(scorer: Scorer) -> Scorer:
    """A scorer of the task, cancellable; its name stays."""

    @functools.wraps(scorer)
    async def score(state: TaskState, target: Target) -> Score | None:
        session = _session()
        with anyio.CancelScope() as session.scope:
            if not session.closed:
                return await scorer(state, target)
        raise SampleFailed("the session was closed")

    return score


@hooks(name="gymmesh", description="Scores a sample when the verdict on its session is due.")
class WaitForVerdict(Hooks):
    """Here the solver has ended, by itself or at a limit, and no limit of time runs."""

    async def on_sample_scoring(self, data: SampleScoring) -> None:
        """Wait, and give the scorers the judge as their model."""
        session = current_session()
        if session is None or _fails(session.failure):
            return
        settle(session.played, None)
        await asyncio.wait([session.judged])
        session.api = JudgeApi(session, refused=not session.may_ask_judge)


def _session() -> SampleSession:
    session = current_session()
    assert session is not None, "only sessions have samples"
    return session


def _fails(error: BaseException | None) -> bool:
    """Whether what a solver raised ends its sample without scores."""
    if parts := getattr(error, "exceptions", ()):
        return any(map(_fails, parts))
    scored = (LimitExceededError, TerminateSampleError, TimeoutError)
    return error is not None and not isinstance(error, scored)
