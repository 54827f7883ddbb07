"""Groups of finished rollouts for a trainer, step by step.

    step      starts a run over the step's tasks and yields groups: first those that earlier steps
              left under way, as they finish, then its own
    _Run      one run: an SDK Collector in a task of its own, whose groups go into a queue

A step that its caller leaves early, or bounds with `groups=`, leaves its rollouts running: their
groups come in the next step, with the tokens of the weights that sampled them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import (
    CollectOptions,
    Collector,
    MemoryOutput,
    OpenOptions,
    OutputFiles,
    RunIdentity,
    RunOutput,
    TaskDefaults,
    UserError,
    run_attempt,
)
from gymmesh_client.collector import Outcomes, ended_by, repeat_seed
from gymmesh_client.dispatch import cause_of
from gymmesh_client.groups import weights_of
from gymmesh_client.log import rollout_id
from gymmesh_client.rows import FailedAttempt
from gymmesh_mesh.service_descriptions import environment_versions
from gymmesh_resource import Environment, Task
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_trainers.collecting.place import MeshPlace, Model, Policy, open_place
from gymmesh_trainers.collecting.settings import Settings, with_settings
from gymmesh_trainers.collecting.stored import KeptRollouts
from gymmesh_trainers.collecting.tasks import TaskLike, Tasks, as_message, messages_of
from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup

_LOG: Final = logging.getLogger("gymmesh.trainers")
_BLOCK: Final = 256  # tasks of an asynchronous iterable that are read at a time


class TrainerCollector:
    """Collects groups for a trainer over a mesh that stays up between steps.

    An async context manager:

        async with TrainerCollector(environment, model=engine, repeats=8) as collector:
            async for group in collector.step(tasks): ...
            await collector.set_weights_version(1)

    Args:
        place: what collects, see `gymmesh_trainers.collecting.place.MeshPlace`.
        model: what answers; None: what the configuration says.
        model_name: the model's name at its endpoint, where `model` is a URL; empty: its only one.
        model_addresses: model services (HOST:PORT) of a mesh elsewhere that are to be notified of
            new weights.
        security: certificates and token for a mesh elsewhere.
        settings: see Settings.

    Attributes:
        counts: groups, rollouts, failed, unscored, stale, carried and no_spread so far.
    """

    def __init__(
        self,
        place: MeshPlace,
        *,
        model: Model | None = None,
        model_name: str = "",
        model_addresses: Sequence[str] = (),
        security: SecurityConfig | None = None,
        **settings: Any,
    ) -> None:
        self.settings = Settings.of(settings)
        self.counts: Counter[str] = Counter()
        self._open = (place, model, model_name, model_addresses, security)
        self._stack = AsyncExitStack()
        self._policy: Policy | None = None
        self._runs: set[_Run] = set()
        self._queue: asyncio.Queue[_Run | _Came] = asyncio.Queue(2 * self.settings.in_step)
        self._newest: int | None = None
        self._step = 0
        self._id = uuid.uuid4().hex[:12]
        self._singles = 0
        self._outputs = 0

    async def __aenter__(self) -> TrainerCollector:
        place, model, name, addresses, security = self._open
        opened = open_place(
            place,
            model,
            model_name=name,
            model_addresses=addresses,
            security=security,
            timeout_s=self.settings.timeout_s,
        )
        self._policy = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(self, *error: object) -> None:
        for run in list(self._runs):
            await run.stop()
        self._policy = None
        await self._stack.aclose()

    @property
    def weights_version(self) -> int | None:
        """The newest version that was announced or seen; None: none."""
        return self._newest

    async def set_weights_version(self, version: int) -> None:
        """The policy's weights are at this version now: new tokens carry it, and staleness is
        counted from it. Raises MeshError where a model service refuses.
        """
        await self._opened().set_weights_version(version)
        self._see(version)

    async def step(
        self, tasks: Tasks, *, groups: int | None = None
    ) -> AsyncGenerator[RolloutGroup, None]:
        """The groups of these tasks, and those that earlier steps left, as they finish.

        Args:
            tasks: rows, `Task`s or a task file; an iterator is read as tasks are needed, and an
                asynchronous one in blocks of 256.
            groups: end after so many; the rollouts that are still under way go on, and their
                groups come in the next step. None: end when nothing is under way.

        Raises:
            UserError: a task cannot be used, or collecting ended early; the text says why.
            MeshError, OutputError: what the mesh and the files raise.
        """
        if groups is not None and groups < 1:
            raise ValueError(f"groups: must be at least 1, not {groups}")
        self._step += 1
        number, handed = self._step, 0
        async for block in _blocks(tasks):
            await self._start(block, number)
            while self._runs and (groups is None or handed < groups):
                group = await self._next(number)
                if group is not None:
                    handed += 1
                    yield group
            if groups is not None and handed >= groups:
                return

    async def one(self, task: TaskLike, *, repeat: int = 0) -> Rollout | FailedRollout:
        """One rollout by itself: for trainers that have a loop and groups of their own. Tried
        again after a failure where that is safe, `max_attempts` times in all, each after the pause
        that a step makes for such a failure, too.
        """
        policy = self._opened()
        message = as_message(task, _defaults(policy), 0)
        self._singles += 1
        # Collectors of other processes may be at work on the same agents.
        run_id = f"one-{self._id}-{self._singles}"
        request = agent_pb2.RunRolloutRequest(
            task=message,
            rollout_id=rollout_id(run_id, message.task_id, repeat),
            run_id=run_id,
            options=self.settings.rollout_options(policy.role),
        )
        if message.HasField("seed"):
            request.task.seed = repeat_seed(message.seed, repeat)
        for attempt in range(1, self.settings.max_attempts + 1):
            request.attempt = attempt
            outcome = await run_attempt(
                policy.mesh.agents.connect,
                request,
                repeat_index=repeat,
                timeout_s=self.settings.timeout_s,
            )
            if not isinstance(outcome, FailedAttempt):
                self.counts["rollouts"] += 1
                return self._judged(outcome, Task(message))
            failed = outcome
            if not failed.failure.retry_safe or attempt == self.settings.max_attempts:
                break
            await asyncio.sleep(_pause_s(failed, attempt))
        failed.partial.failed.failure.CopyFrom(failed.failure)
        self.counts["failed"] += 1
        return FailedRollout(failed.partial, Task(message))

    async def many(self, tasks: Sequence[TaskLike]) -> list[Rollout | FailedRollout]:
        """A rollout of each, in their order: all at once, or `concurrency` at a time where that is
        set. A task that is there several times in a row gets repeats 0, 1, 2 … See `one`.
        """
        places = asyncio.Semaphore(self.settings.concurrency or max(1, len(tasks)))
        repeats = [0] * len(tasks)
        for place in range(1, len(tasks)):
            if _same(tasks[place], tasks[place - 1]):
                repeats[place] = repeats[place - 1] + 1

        async def single(task: TaskLike, repeat: int) -> Rollout | FailedRollout:
            async with places:
                return await self.one(task, repeat=repeat)

        return await asyncio.gather(*map(single, tasks, repeats))

    # -- runs ---------------------------------------------------------------------------------

    async def _start(self, tasks: Iterable[TaskLike] | Path | str, number: int) -> None:
        policy, settings = self._opened(), self.settings
        kept = KeptRollouts(settings.repeats)
        output = await self._output(kept, policy)
        for version in kept.versions:
            self._see(version)
        options = CollectOptions(
            repeats=settings.repeats,
            concurrency=settings.in_step,
            timeout_s=settings.timeout_s,
            max_attempts=settings.max_attempts,
            hand_out=max(1, 2 * settings.in_step // settings.repeats),
            hand_out_parts=True,
            rollout=settings.rollout_options(policy.role),
        )
        collector = Collector(
            policy.mesh.agents.connect, output, options, stored=policy.mesh.agents.stored
        )
        self._refuse_bad(tasks, policy)
        messages = kept.watch(messages_of(tasks, _defaults(policy)))
        self._runs.add(_Run(collector, messages, kept, number, self._queue))

    def _refuse_bad(self, tasks: Iterable[TaskLike] | Path | str, policy: Policy) -> None:
        """Raise UserError for a task that its environment would refuse, before any is run; tasks
        that are read one at a time fail when their turn comes.
        """
        if policy.checks is None or not isinstance(tasks, list | tuple):
            return
        for place, task in enumerate(tasks):
            problem = policy.checks.problem(as_message(task, _defaults(policy), place))
            if problem is not None:
                raise UserError(f"tasks[{place}]: {': '.join(filter(None, problem))}")

    async def _output(self, kept: KeptRollouts, policy: Policy) -> Outcomes:
        path = self.settings.output
        if path is None:
            return MemoryOutput()
        self._outputs += 1
        if self._outputs > 1:
            path = path.with_name(f"{path.stem}.step-{self._outputs}{path.suffix}")
        files = OutputFiles(path)
        said = f"{self.settings.repeats}\n{self.settings.params!r}\n{_named(self._open[0])}"
        identity = RunIdentity("", hashlib.sha256(said.encode()).hexdigest())
        known = await environment_versions(policy.mesh.directory, None)
        identity = replace(identity, environments=known)
        output = RunOutput.open(
            files,
            identity,
            OpenOptions(
                resume=self.settings.resume and files.journal.exists(),
                accept=self.settings.accept_change,
                repeats=self.settings.repeats,
            ),
            on_row=kept.completed,
            on_failure=kept.failed,
        )
        for notice in output.notices:
            _LOG.warning("%s: %s", files.shown, notice)
        return output

    async def _next(self, number: int) -> RolloutGroup | None:
        """The next group that a run finished; None: a run ended. Raises what a run raised."""
        came = await self._queue.get()
        if isinstance(came, _Run):
            self._runs.discard(came)
            if came.error is not None:
                raise came.error
            return None
        return self._group(came, number)

    def _group(self, came: _Came, number: int) -> RolloutGroup:
        task = Task(came.task)
        group = RolloutGroup(task, step=came.step, carried=came.step != number)
        for message in sorted(came.rollouts, key=lambda one: one.repeat_index):
            if not message.HasField("completed"):
                group.failed.append(FailedRollout(message, task))
                continue
            rollout = self._judged(message, task)
            if rollout.stale and self.settings.stale == "drop":
                group.stale.append(rollout)
            elif rollout.reward is None:
                group.unscored.append(rollout)
            else:
                group.rollouts.append(rollout)
        self.counts.update(
            groups=1,
            rollouts=len(group.rollouts),
            failed=len(group.failed),
            unscored=len(group.unscored),
            carried=int(group.carried),
            no_spread=int(group.no_spread),
        )
        return group

    def _judged(self, message: pb.Rollout, task: Task) -> Rollout:
        """The rollout with its staleness, which is counted."""
        versions = weights_of(message)  # those of other models are none of the policy's
        for version in versions:
            self._see(version)
        oldest, most = min(versions, default=None), self.settings.max_staleness
        behind = 0 if oldest is None or self._newest is None else self._newest - oldest
        stale = most is not None and behind > most
        self.counts["stale"] += stale
        return Rollout(message, task, behind, stale)

    def _see(self, version: int) -> None:
        self._newest = version if self._newest is None else max(self._newest, version)

    def _opened(self) -> Policy:
        if self._policy is None:
            raise RuntimeError("the collector is not open; use it as `async with`")
        return self._policy


@with_settings
async def collect(
    place: MeshPlace,
    tasks: Tasks,
    *,
    model: Model | None = None,
    model_name: str = "",
    **options: Any,
) -> AsyncGenerator[RolloutGroup, None]:
    """The groups of finished rollouts of these tasks, as they finish.

        async for group in gymmesh.collect(environment, tasks, repeats=8, model=engine):
            for rollout, advantage in zip(group.rollouts, group.advantages):
                train(rollout.tokens, rollout.mask, rollout.logprobs, advantage)

    Args and errors: see TrainerCollector, its `step` and Settings. Leaving the loop early ends
    what is under way; close the generator (`contextlib.aclosing`) to do so at once.
    """
    async with (
        TrainerCollector(place, model=model, model_name=model_name, **options) as collector,
        aclosing(collector.step(tasks)) as groups,
    ):
        async for group in groups:
            yield group


def _pause_s(failed: FailedAttempt, times: int) -> float:
    """Seconds before a rollout that has failed `times` times is tried again."""
    error = from_status(failed.failure.status)
    begun = failed.partial.HasField("started")
    ended = ended_by(failed.failure, error, begun=begun)
    return cause_of(ended).wait_s(times, ended.retry_after_s)


def _defaults(policy: Policy) -> TaskDefaults:
    defaults = policy.mesh.defaults
    return TaskDefaults(defaults.environment, defaults.agent)


async def _blocks(tasks: Tasks) -> AsyncGenerator[Iterable[TaskLike] | Path | str, None]:
    """The tasks whole, or an asynchronous iterable's in blocks."""
    if not isinstance(tasks, AsyncIterable):
        yield tasks
        return
    block: list[TaskLike] = []
    async for task in tasks:
        block.append(task)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True, slots=True)
class _Came:
    """A finished group of a run."""

    task: pb.Task
    rollouts: Sequence[pb.Rollout]
    step: int


@dataclass(eq=False, slots=True)
class _Run:
    """A run in a task of its own, which begins in the running event loop. Its groups go into the
    queue, and itself when it is over.
    """

    collector: Collector
    tasks: Iterable[pb.Task]
    kept: KeptRollouts
    step: int
    queue: asyncio.Queue[_Run | _Came]
    error: Exception | None = None
    work: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.work = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Cancel what is in flight, and wait for its end."""
        self.collector.cancel()
        await cancel_and_wait(self.work)

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.collector.run(self.tasks))
                both.create_task(self._hand_on())
            if self.collector.why:
                self.error = UserError(f"collecting ended early: {self.collector.why}")
        except* Exception as group:
            self.error = _first(group)
        await self.queue.put(self)

    async def _hand_on(self) -> None:
        async with aclosing(self.collector.groups()) as groups:
            async for group in groups:
                await self._hand_on_whole()
                rollouts = [*self.kept.take(group.task.task_id), *group.rollouts]
                await self.queue.put(_Came(group.task, rollouts, self.step))
        await self._hand_on_whole()

    async def _hand_on_whole(self) -> None:
        while self.kept.whole:
            task, rollouts = self.kept.whole.pop(0)
            await self.queue.put(_Came(task, rollouts, self.step))


def _same(task: TaskLike, before: TaskLike) -> bool:
    """Whether two tasks are one: the same object, or rows that say the same."""
    return task is before or (isinstance(task, Mapping) and task == before)


def _named(place: MeshPlace) -> str:
    """The place in words that are the same in another process."""
    if isinstance(place, Environment):
        place = type(place)
    return f"{place.__module__}.{place.__qualname__}" if isinstance(place, type) else repr(place)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    one = group.exceptions[0]
    return _first(one) if isinstance(one, ExceptionGroup) else one
