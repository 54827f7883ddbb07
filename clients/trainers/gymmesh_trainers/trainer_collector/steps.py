"""A step of a training: groups until it is full, and then an end.

The step starts a run over its tasks, takes groups as they finish (those that earlier steps left
under way, too), and asks its rules which of them the trainer gets. When it closes, no run begins
another group; what is under way is kept for the next step, or dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from gymmesh_trainers.rollouts import RolloutGroup
from gymmesh_trainers.trainer_collector.filters import Keep, rules_of
from gymmesh_trainers.trainer_collector.runs import Finished, Run, Runs
from gymmesh_trainers.trainer_collector.settings import whole_number

_LOG: Final = logging.getLogger("gymmesh.trainers")
# A step without a bound warns when its rules have rejected so many groups for each that it wants,
# and at least so many.
_REJECTED_EACH: Final = 10
_REJECTED_LEAST: Final = 20

Leftovers = Literal["keep", "drop"]
"""What becomes of the groups that are under way when a step closes."""
StepEnd = Literal["", "groups", "at_most", "tasks", "left"]
"""Why a step ended: it has its groups, it spent `at_most`, the tasks are over, it was left early;
empty: it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step collects.

    Attributes:
        groups: end after so many that the rules keep; None: when the tasks are over.
        keep: the rules; see gymmesh_trainers.trainer_collector.filters.
        at_most: end after so many groups, rejected ones included; None: no bound.
        leftovers: what becomes of groups that are under way at the end.
        ordered: hand the groups out in the order of their tasks.
    """

    groups: int | None = None
    keep: Keep | Sequence[Keep] | None = None
    at_most: int | None = None
    leftovers: Leftovers = "keep"
    ordered: bool = False

    def __post_init__(self) -> None:
        for key, value in (("groups", self.groups), ("at_most", self.at_most)):
            if value is not None:
                whole_number(key, value)
        if self.leftovers not in ("keep", "drop"):
            raise ValueError(f"leftovers: must be 'keep' or 'drop', not {self.leftovers!r}")
        rules_of(self.keep)


class StepHost(Protocol):
    """What a step needs of its collector."""

    @property
    def runs(self) -> Runs:
        """The runs under way."""
        ...

    async def begin(self, step: Step) -> None:
        """Make ready for a step. Raises UserError and RuntimeError."""

    def take(self, step: Step, finished: Finished) -> tuple[RolloutGroup, str]:
        """The group, and the rule that rejected it; empty: none."""
        ...

    async def end(self, leftovers: Leftovers) -> int:
        """Begin no more groups, and keep or drop those that are under way: how many."""
        ...

    def left_early(self, step: Step) -> None:
        """A step that no `async with` holds was left early."""


class Step:
    """The groups of a step, as they finish: iterate with `async for`.

        async with collector.step(tasks, groups=32, keep=spread, leftovers="drop") as step:
            async for group in step:
                ...

    `async with` closes the step when its block ends, also by `break` or an error. Without
    `async with`, a loop that is left early closes the step soon after, because asyncio ends
    abandoned generators. The next step waits for that.

    Attributes:
        number: the step's number, from 1.
        options: how the step collects.
        counts: finished `groups`; `kept` and `rejected` groups among them; groups `carried` from
            earlier steps; at the end `left`: groups in progress, kept for the next step or dropped.
        rejected: the number of rejected groups, by the rule that rejected them.
        ended: why the step ended.
    """

    def __init__(
        self,
        host: StepHost,
        number: int,
        starts: AsyncGenerator[Run, None],
        options: StepOptions,
    ) -> None:
        self.number = number
        self.options = options
        self.counts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.ended: StepEnd = ""
        self.rules = rules_of(options.keep)
        self._host = host
        self._starts = starts  # starts the runs of its tasks, one after another
        self._ending: asyncio.Task[None] | None = None
        self._begun = False
        self._entered = False
        self._was_entered = False
        self._warned_rejected = False

    def __repr__(self) -> str:
        state = f"ended ({self.ended})" if self.ended else "open"
        return f"<Step {self.number}: {state}, {self.counts['kept']} groups>"

    @property
    def is_entered(self) -> bool:
        """Whether its `async with` block is under way."""
        return self._entered

    async def __aenter__(self) -> Step:
        self._entered = self._was_entered = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._entered = False
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[RolloutGroup, None]:
        finished = False
        try:
            while (group := await self.next()) is not None:
                yield group
            finished = True
        finally:
            # asyncio may end this generator only after an `async with` has closed the step.
            if not finished and not self._was_entered:
                await self.close()
                self._host.left_early(self)

    async def next(self) -> RolloutGroup | None:
        """The next group; None: the step has ended.

        Raises:
            UserError: a task can't be used, or collecting ended early; the text says why.
            MeshError, OutputError: what the mesh and the files raise.
        """
        try:
            if not self._begun and not self.ended:
                await self._host.begin(self)
                self._begun = True
                await anext(self._starts, None)
            while not self.ended:
                if why := self._full():
                    await self._end(why)
                    break
                finished = await self._next_finished()
                if finished is None:
                    continue
                group, rejected = self._host.take(self, finished)
                self.counts.update(groups=1, carried=int(group.carried))
                if not rejected:
                    self.counts["kept"] += 1
                    return group
                self.counts["rejected"] += 1
                self.rejected[rejected] += 1
                self._warn_rejected()
        except Exception:
            await self.close()
            raise
        return None

    async def close(self) -> None:
        """End the step. No more groups begin; groups in progress are kept or dropped, as
        `leftovers` says.
        """
        await self._end("left")

    aclose = close

    def _full(self) -> StepEnd:
        groups, at_most = self.options.groups, self.options.at_most
        if groups is not None and self.counts["kept"] >= groups:
            return "groups"
        if at_most is not None and self.counts["groups"] >= at_most:
            return "at_most"
        return ""

    async def _next_finished(self) -> Finished | None:
        """A finished group; None: none came, look again."""
        runs = self._host.runs
        early = self._early(runs)
        if early is not None:
            return early
        if not runs.live:
            if await anext(self._starts, None) is None:
                await self._end("tasks")
            return None
        finished = await runs.next()
        if finished is not None and self.options.ordered:
            finished.run.early[finished.task.task_id] = finished
            return None
        return finished

    def _early(self, runs: Runs) -> Finished | None:
        """A group that came before its turn, which it is now."""
        for run in runs.live:
            first = next(iter(run.owed if self.options.ordered else run.early), None)
            if first is not None:
                return run.early.pop(first, None)
        return None

    async def _end(self, why: StepEnd) -> None:
        """End the step, once. A caller that is cancelled meanwhile doesn't keep it from ending."""
        if self._ending is None:
            self.ended = why
            self._ending = asyncio.create_task(self._finish())
        await asyncio.shield(self._ending)

    async def _finish(self) -> None:
        await self._starts.aclose()
        if self._begun:
            self.counts["left"] = await self._host.end(self.options.leftovers)
        self._warn(self.ended)

    def _warn(self, why: StepEnd) -> None:
        """Say that a step has fewer groups than were asked for."""
        groups = self.options.groups
        if groups is not None and why in ("at_most", "tasks") and self.counts["kept"] < groups:
            _LOG.warning(
                "step %d has %d of %d groups: %s; rejected: %s",
                self.number,
                self.counts["kept"],
                groups,
                "no tasks are left"
                if why == "tasks"
                else f"at_most={self.options.at_most} is reached",
                self._rejected_text(),
            )

    def _warn_rejected(self) -> None:
        """Say once that the rules reject nearly everything and that nothing bounds the step."""
        groups, rejected = self.options.groups, self.counts["rejected"]
        if self._warned_rejected or groups is None or self.options.at_most is not None:
            return
        if rejected < max(_REJECTED_LEAST, _REJECTED_EACH * groups):
            return
        self._warned_rejected = True
        _LOG.warning(
            "step %d has %d of %d groups, and its rules rejected %d groups (%s). The step "
            "continues until it has all groups. To limit the step, pass at_most=…",
            self.number,
            self.counts["kept"],
            groups,
            rejected,
            self._rejected_text(),
        )

    def _rejected_text(self) -> str:
        """The rules with how many groups each rejected."""
        return ", ".join(f"{name} {count}" for name, count in self.rejected.items()) or "none"
