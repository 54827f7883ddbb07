"""The steps of a training, one after another: what they share, and what is saved of it.

Of the runs under way, the tasks that are drawn, the counts and the last number each step takes
over what the step before left.
"""

from __future__ import annotations

import glob
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import OutputFiles, UserError
from gymmesh_resource import Task
from gymmesh_trainers.rollouts import RolloutGroup
from gymmesh_trainers.trainer_collector.filters import rejected_by
from gymmesh_trainers.trainer_collector.grouping import grouped
from gymmesh_trainers.trainer_collector.missing_tokens import MissingTokens
from gymmesh_trainers.trainer_collector.place import Policy
from gymmesh_trainers.trainer_collector.reading import blocks, defaults_of, drawn_of, refuse_bad
from gymmesh_trainers.trainer_collector.runs import Finished, Run, RunName, Runs, wait_cancelled
from gymmesh_trainers.trainer_collector.settings import Settings, whole_number
from gymmesh_trainers.trainer_collector.sources import DrawnTask, TaskStream, as_source
from gymmesh_trainers.trainer_collector.state import CollectorState, SavedRun, SavedTask
from gymmesh_trainers.trainer_collector.steps import Leftovers, Step, StepOptions
from gymmesh_trainers.trainer_collector.tasks import TaskLike, Tasks
from gymmesh_trainers.trainer_collector.weights import WeightsVersions

_LOG: Final = logging.getLogger("gymmesh.trainers")


class StepSeries:
    """The steps of a collector.

    Args:
        place: names what collects, in the identity of files.
        tasks: the collector's own tasks.
        start_step: the number of the first step; None: it isn't said.
        opened: the open mesh.
        missing_tokens: warns of a model without tokens.

    Attributes:
        counts: of the collector.
        runs: those under way.
        last_step: the number of the last step; 0: there was none.
    """

    def __init__(
        self,
        settings: Settings,
        place: str,
        weights: WeightsVersions,
        tasks: TaskStream | Sequence[TaskLike] | Path | str | None,
        start_step: int | None,
        opened: Callable[[], Awaitable[Policy]],
        missing_tokens: MissingTokens,
    ) -> None:
        if start_step is not None:
            whole_number("start_step", start_step)
        self.counts: Counter[str] = Counter()
        self.runs = Runs(settings, place, weights)
        self.last_step = (start_step or 1) - 1
        self._settings = settings
        self._weights = weights
        self._opened = opened
        self._missing_tokens = missing_tokens
        self._source = None if tasks is None else as_source(tasks)
        self._source_open = False
        self._returned: deque[DrawnTask] = deque()
        # With files to resume, the first step's number must be known.
        self._numbered = start_step is not None
        self._restored: list[SavedRun] = []
        self._step: Step | None = None
        self._told_left = False

    def step(self, tasks: Tasks | None, number: int | None, options: StepOptions) -> Step:
        """As TrainerCollector.step."""
        if isinstance(tasks, TaskStream):
            raise TypeError("tasks: pass a TaskSet, Stages or Mix to the collector, as tasks=")
        if tasks is None and self._source is None:
            raise TypeError("tasks: are missing; pass tasks= to step() or to the collector")
        if number is not None:
            whole_number("number", number, 0)
        if number is None:
            number = self.last_step + 1
        elif number <= self.last_step:
            raise ValueError(f"number: must be above {self.last_step}, the previous step")
        else:
            self._numbered = True
        self.last_step = number
        return Step(self, number, self._starts(tasks, number, options.at_most), options)

    async def begin(self, step: Step) -> None:
        """Make ready for a step."""
        if self._step is not None and self._step.is_entered:
            raise RuntimeError(f"step {self._step.number} is still open; close the step first")
        if self._step is not None:
            await self._step.close()
        if not self._numbered:
            refuse_unnumbered(self._settings)
            self._numbered = True  # what files hold from here on is this session's own
        self._step = step
        policy = await self._opened()
        restored, self._restored = self._restored, []
        for run in restored:
            await self.runs.start(
                policy,
                RunName(run.step, run.part),
                map(_restored_task, run.groups),
                returns=run.drawn,
                carried=True,
                resume=True,
            )

    def take(self, step: Step, finished: Finished) -> tuple[RolloutGroup, str]:
        """A group that finished, and the rule that rejected it."""
        run = finished.run
        owed = run.owed.pop(finished.task.task_id)
        self.runs.forget_ended()
        step_of, drop_stale = run.name.step, self._settings.stale == "drop"
        group = RolloutGroup(Task(finished.task), step=step_of, carried=step_of != step.number)
        grouped(
            group,
            finished.rollouts,
            self._weights,
            drop_stale=drop_stale,
            folders=self._settings.side_data_folders,
        )
        for rollout in (*group.rollouts, *group.unscored):
            self._missing_tokens.look(rollout)
        rejected = rejected_by(group, step.rules)
        if run.returns and self._source is not None:
            self._source.observe(owed.source, group, rejected)
        self.counts.update(
            groups=1,
            rejected=int(bool(rejected)),
            rollouts=len(group.rollouts),
            failed=len(group.failed),
            unscored=len(group.unscored),
            stale=len(group.stale) + sum(one.stale for one in group.rollouts + group.unscored),
            carried=int(group.carried),
            no_spread=int(bool(group.rewards) and group.no_spread),
        )
        return group, rejected

    async def end(self, leftovers: Leftovers) -> int:
        """Begin no more groups, and keep or drop those that are under way: how many."""
        unbegun = [drawn for run in self.runs.live for drawn in run.begin_no_more() if run.returns]
        left = sum(len(run.owed) for run in self.runs.live)
        cancelled = self.runs.cancel() if leftovers == "drop" else []
        dropped = [one for run in cancelled if run.returns for one in run.owed.values()]
        self._returned.extendleft(one.again() for one in reversed([*dropped, *unbegun]))
        await wait_cancelled(cancelled)
        return left

    def left_early(self, step: Step) -> None:
        """Say once what became of a step that was left early."""
        if self._told_left or not step.counts["left"]:
            return
        self._told_left = True
        _LOG.warning(
            "step %d was left early with %d unfinished groups; %s. Put the step's loop inside `"
            "async with collector.step(…, leftovers=…) as step:`",
            step.number,
            step.counts["left"],
            "these groups were dropped"
            if step.options.leftovers == "drop"
            else "the next step yields these groups",
        )

    async def _starts(
        self, tasks: Tasks | None, number: int, at_most: int | None
    ) -> AsyncGenerator[Run, None]:
        """Start the runs of a step, one after another."""
        policy = await self._opened()
        left = None if at_most is None else at_most - sum(len(one.owed) for one in self.runs.live)
        part = 0
        async for block in blocks(self._own(policy) if tasks is None else tasks):
            if left is not None and left < 1:
                return
            refuse_bad(block, policy)
            part += 1
            run = await self.runs.start(
                policy,
                RunName(number, part),
                islice(drawn_of(block, policy), left),
                returns=tasks is None,
                resume=self._settings.resume,
            )
            yield run
            if left is not None:
                left -= run.read

    def _own(self, policy: Policy) -> Iterator[DrawnTask]:
        """The collector's own tasks, those that come again first."""
        while (drawn := self._draw(policy)) is not None:
            yield drawn

    def _draw(self, policy: Policy) -> DrawnTask | None:
        if self._returned:
            return self._returned.popleft()
        if self._source is None:
            return None
        if not self._source_open:
            self._source.open(defaults_of(policy), partial(refuse_bad, policy=policy))
            self._source_open = True
        return self._source.draw()

    def state_dict(self) -> dict[str, Any]:
        """As TrainerCollector.state_dict."""
        carried = [
            SavedRun(*run.name, run.returns, [_saved(one) for one in run.owed.values()])
            for run in self.runs.live
            if run.owed
        ]
        return CollectorState(
            step=self.last_step,
            weights_version=self._weights.announced,
            newest_version=self._weights.newest,
            first_version=self._weights.first,
            weights_adapter=self._weights.adapter,
            counts=dict(self.counts),
            carried=[*self._restored, *carried],
            returned=[_saved(one) for one in self._returned],
            tasks=None if self._source is None else self._source.state_dict(),
        ).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As TrainerCollector.load_state_dict."""
        if self._step is not None:
            raise RuntimeError("a state can only be loaded before the first step")
        loaded = CollectorState.of(state)
        if self._source is not None and loaded.tasks is not None:
            try:
                self._source.load_state_dict(loaded.tasks)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UserError(
                    f"state: tasks: do not match a {type(self._source).__name__} ({error!r}). "
                    "Resume with the same tasks="
                ) from None
        elif self._source is not None or loaded.tasks is not None:
            raise UserError(
                "state: was saved by a collector with tasks=; pass the same tasks= to this "
                "collector"
                if self._source is None
                else "state: was saved by a collector without tasks=; remove tasks= of this "
                "collector"
            )
        self._numbered = True
        self.last_step = loaded.step
        self.counts.clear()
        self.counts.update(loaded.counts)
        self._restored = loaded.carried
        self._returned = deque(map(_restored_task, loaded.returned))
        self._weights.restore(
            loaded.weights_version,
            loaded.newest_version,
            loaded.first_version,
            loaded.weights_adapter,
        )


def refuse_unnumbered(settings: Settings) -> None:
    """Raise UserError where files are resumed and nobody said which step it is: a trainer would
    train on the rollouts of step 1 again.
    """
    output = settings.output
    if output is None or not settings.resume:
        return
    later = output.parent.glob(f"{glob.escape(output.stem)}.step-*")
    if OutputFiles(output).journal.exists() or any(later):
        raise UserError(
            f"{output} has steps of an earlier session. Choose the next step with "
            "load_state_dict(), start_step= or step(number=…)"
        )


def _saved(drawn: DrawnTask) -> SavedTask:
    return SavedTask(drawn.task.SerializeToString(deterministic=True), drawn.source, drawn.own_id)


def _restored_task(saved: SavedTask) -> DrawnTask:
    return DrawnTask(pb.Task.FromString(saved.task), saved.source, saved.own_id)
