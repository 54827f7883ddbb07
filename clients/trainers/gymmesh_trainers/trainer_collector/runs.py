"""Runs: each is an SDK Collector in a task of its own, whose finished groups go into a queue.

Runs   starts them, with their files, and holds those that are under way
Run    one: the tasks that it read, and those whose groups nobody got yet
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import (
    CollectOptions,
    Collector,
    MemoryOutput,
    OpenOptions,
    OutputFiles,
    RunIdentity,
    RunOutput,
    UserError,
)
from gymmesh_client.collector import Outcomes
from gymmesh_client.output import RetryChoice
from gymmesh_mesh.service_descriptions import environment_versions
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_trainers.trainer_collector.place import Policy
from gymmesh_trainers.trainer_collector.settings import Settings
from gymmesh_trainers.trainer_collector.sources import DrawnTask
from gymmesh_trainers.trainer_collector.stored import KeptRollouts, replaced_tasks
from gymmesh_trainers.trainer_collector.weights import WeightsVersions

_LOG: Final = logging.getLogger("gymmesh.trainers")


class RunName(NamedTuple):
    """Which run: its step, and which part of the step's tasks, from 1."""

    step: int
    part: int = 1

    def file(self, output: Path) -> Path:
        """Its rows, where those of the first run are in `output`."""
        step = f".step-{self.step}" if self.step > 1 else ""
        part = f".part-{self.part}" if self.part > 1 else ""
        return output.with_name(f"{output.stem}{step}{part}{output.suffix}")


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A finished group."""

    run: Run
    task: pb.Task
    rollouts: Sequence[pb.Rollout]


@dataclass(eq=False, slots=True)
class Run:
    """A run in a task of its own, which begins in the running event loop. Its groups go into the
    queue, and the run itself when it is over.

    Attributes:
        returns: whether its tasks are the collector's own, which a dropped run gives back.
        carried: whether a saved state had its groups under way: they count as begun.
        owed: the tasks that were read and whose groups nobody got, by id, in order.
        early: groups that finished before those that are to be handed out first, by task.
        read: how many tasks were read.
        over: whether it ended and said so.
        dropped: whether it was cancelled.
        error: what it raised.
    """

    name: RunName
    collector: Collector
    tasks: Iterator[DrawnTask]
    kept: KeptRollouts
    queue: asyncio.Queue[Run | Finished]
    returns: bool
    carried: bool = False
    owed: dict[str, DrawnTask] = field(default_factory=dict)
    early: dict[str, Finished] = field(default_factory=dict)
    read: int = 0
    over: bool = False
    error: Exception | None = None
    dropped: bool = False
    work: asyncio.Task[None] = field(init=False)
    _reads: bool = True

    def __post_init__(self) -> None:
        if self.carried:
            groups = list(self.tasks)
            self.owed = {one.task.task_id: one for one in groups}
            self.tasks = iter(groups)
        self.work = asyncio.create_task(self._work())

    def begin_no_more(self) -> list[DrawnTask]:
        """Begin no more groups; those that were begun are finished. The tasks of the others that
        were read.
        """
        if self.carried:
            return []
        self._reads = False
        unbegun = self.collector.begin_no_more_groups()
        return [self.owed.pop(task_id) for task_id in unbegun]

    def cancel(self) -> None:
        """Cancel what is in flight; `work` ends soon after."""
        self.dropped = True
        self._reads = False
        self.collector.cancel()
        self.work.cancel()

    def _read(self) -> Iterator[pb.Task]:
        while self._reads and (drawn := next(self.tasks, None)) is not None:
            task = drawn.task
            self.owed[task.task_id] = drawn
            self.read += 1
            yield task

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.collector.run(self.kept.watch(self._read())))
                both.create_task(self._hand_on())
            if self.collector.why:
                self.error = UserError(f"collecting ended early: {self.collector.why}")
        except* Exception as group:
            self.error = first_of(group)
        await self.queue.put(self)

    async def _hand_on(self) -> None:
        async with aclosing(self.collector.groups()) as groups:
            async for group in groups:
                await self._hand_on_whole()
                rollouts = [*self.kept.take(group.task.task_id), *group.rollouts]
                await self.queue.put(Finished(self, group.task, rollouts))
        await self._hand_on_whole()

    async def _hand_on_whole(self) -> None:
        while self.kept.whole:
            task, rollouts = self.kept.whole.pop(0)
            await self.queue.put(Finished(self, task, rollouts))


class Runs:
    """The runs under way of a collector, or of an evaluation.

    Args:
        settings: how to collect.
        place: names the place in the identity of files.

    Attributes:
        live: in the order in which they began; a run stays until all its groups were taken.
    """

    def __init__(self, settings: Settings, place: str, weights: WeightsVersions) -> None:
        self.live: list[Run] = []
        self._settings = settings
        self._place = place
        self._weights = weights
        self._closed = False
        self._queue: asyncio.Queue[Run | Finished] = asyncio.Queue(2 * settings.in_step)

    async def start(
        self,
        policy: Policy,
        name: RunName,
        tasks: Iterable[DrawnTask],
        *,
        returns: bool = False,
        carried: bool = False,
        resume: bool = False,
    ) -> Run:
        """Start a run; `returns` and `carried` as in Run, `resume`: keep what its files have.

        Raises UserError and OutputError where its files can't be opened.
        """
        settings = self._settings
        kept = KeptRollouts(settings.repeats)
        output = await self._output(policy, name, kept, resume=resume)
        for version in kept.versions:
            self._weights.see(version)
        options = CollectOptions(
            repeats=settings.repeats,
            concurrency=settings.in_step,
            timeout_s=settings.timeout_s,
            max_attempts=settings.max_attempts,
            hand_out=max(1, 2 * settings.in_step // settings.repeats),
            hand_out_parts=True,
            rollout=settings.rollout_options(policy.role),
        )
        agents = policy.mesh.agents
        collector = Collector(agents.connect, output, options, stored=agents.stored)
        run = Run(name, collector, iter(tasks), kept, self._queue, returns, carried)
        self.live.append(run)
        return run

    async def next(self) -> Finished | None:
        """The next group that finished, of whichever run; None: a run ended, look again.

        Raises what a run raised, and RuntimeError where the collector was closed meanwhile.
        """
        came = await self._queue.get()
        if self._closed:
            raise RuntimeError("the collector was closed")
        run = came.run if isinstance(came, Finished) else came
        if run.dropped:
            return None
        if isinstance(came, Finished):
            return came
        run.over = True
        self.forget_ended()
        if run.error is not None:
            self.live = [one for one in self.live if one is not run]
            raise run.error
        return None

    def forget_ended(self) -> None:
        """Let go of runs that ended and whose groups were all taken."""
        self.live = [one for one in self.live if not one.over or one.early]

    async def close(self) -> None:
        """Cancel all runs and wait for their ends. A caller waiting for a group gets an error."""
        self._closed = True
        await wait_cancelled(self.cancel())

    def cancel(self) -> list[Run]:
        """Cancel all runs. They are not under way any more, and their groups come no more."""
        cancelled, self.live = self.live, []
        for run in cancelled:
            run.cancel()
        while not self._queue.empty():
            self._queue.get_nowait()
        if cancelled:
            self._queue.put_nowait(cancelled[0])  # wakes a caller that waits
        return cancelled

    async def _output(
        self, policy: Policy, name: RunName, kept: KeptRollouts, *, resume: bool
    ) -> Outcomes:
        settings = self._settings
        if settings.output is None:
            return MemoryOutput()
        files = OutputFiles(name.file(settings.output))
        said = f"{settings.repeats}\n{settings.params!r}\n{self._place}"
        if not settings.append_only:
            said += "\nnot append-only"
        identity = RunIdentity("", hashlib.sha256(said.encode()).hexdigest())
        known = await environment_versions(policy.mesh.directory, None)
        identity = replace(identity, environments=known)
        resume = resume and files.journal.exists()
        replaced = replaced_tasks(files, self._weights) if resume else frozenset()
        output = RunOutput.open(
            files,
            identity,
            OpenOptions(
                resume=resume,
                in_python=True,
                accept=settings.accept_change,
                repeats=settings.repeats,
                retry=RetryChoice(tasks=replaced),
            ),
            on_row=kept.completed,
            on_failure=kept.failed,
        )
        for notice in output.notices:
            _LOG.warning("%s: %s", files.shown, notice)
        if replaced:
            _LOG.info(
                "%s: collecting %d groups with outdated weights again", files.shown, len(replaced)
            )
        return output


async def wait_cancelled(runs: Sequence[Run]) -> None:
    """Wait for the ends of runs that were cancelled."""
    await asyncio.gather(*(cancel_and_wait(run.work) for run in runs))


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """The first exception of a group that is none itself."""
    one = group.exceptions[0]
    return first_of(one) if isinstance(one, ExceptionGroup) else one
