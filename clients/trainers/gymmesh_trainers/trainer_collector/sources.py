"""Tasks that a collector draws from, step after step, and whose position it saves. Pure.

    TaskSet   the tasks of a list or file, epoch after epoch
    Stages     a curriculum: lists of tasks, the next one once the rewards are high enough
    Mix        several of these, drawn by weights

A source draws the same tasks in the same order from the same state.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import TaskDefaults, TaskFile, TaskReader, UserError
from gymmesh_trainers.rollouts import RolloutGroup
from gymmesh_trainers.trainer_collector.tasks import TaskLike, as_message

_SEED_BITS: Final = 53  # what JSON readers of other languages keep exactly
SourceState = dict[str, Any]
"""A state that JSON can hold."""
RefuseBad = Callable[[Sequence[TaskLike] | Path | str], None]
"""Raises UserError for tasks of which the mesh's environments would refuse one."""


class DrawnTask(NamedTuple):
    """A task that was drawn.

    Attributes:
        task: the message.
        source: the name of the source in a Mix that it is of; empty: it is of no Mix.
        own_id: its id in its source, where a step that has it several times numbers the ids.
    """

    task: pb.Task
    source: str = ""
    own_id: str = ""

    def again(self) -> DrawnTask:
        """The task as it was drawn."""
        task = pb.Task()
        task.CopyFrom(self.task)
        task.task_id = self.own_id or task.task_id
        return DrawnTask(task, self.source)


class TaskStream(ABC):
    """Tasks without an end, or up to some number of epochs."""

    @abstractmethod
    def open(self, defaults: TaskDefaults, refuse_bad: RefuseBad) -> None:
        """Read what is to be read, before the first draw.

        refuse_bad: checks tasks, before they are read. Raises UserError.
        """

    @abstractmethod
    def draw(self) -> DrawnTask | None:
        """The next task; None: there are no more."""

    @abstractmethod
    def observe(self, source: str, group: RolloutGroup, rejected: str) -> None:
        """A group of one of its tasks finished.

        Args:
            source: the name that the task was drawn with.
            rejected: the rule of the step that rejected it; empty: the trainer got it.
        """

    @abstractmethod
    def state_dict(self) -> SourceState:
        """Where it is."""

    @abstractmethod
    def load_state_dict(self, state: SourceState) -> None:
        """Continue from a state. Raises UserError for one of other tasks."""


class TaskSet(TaskStream):
    """The tasks of a list or a task file, epoch after epoch.

    Args:
        tasks: rows, `Task`s, or the path of a task file.
        shuffle: seed of a new order in each epoch; None: the given order.
        seed: each task without a seed gets a new one in each epoch, derived from this number;
            None: such tasks have no seed.
        epochs: how many times each task is drawn; None: endlessly.
    """

    def __init__(
        self,
        tasks: Sequence[TaskLike] | Path | str,
        *,
        shuffle: int | None = None,
        seed: int | None = None,
        epochs: int | None = None,
    ) -> None:
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs: must be at least 1, not {epochs}")
        if not isinstance(tasks, Sequence | Path):
            raise UserError(
                f"tasks: must be a list or a task file, not {type(tasks).__name__}; pass an "
                "iterator to step()"
            )
        self._given = tasks
        self._shuffle = shuffle
        self._seed = seed
        self._epochs = epochs
        self._tasks: Sequence[pb.Task] = ()
        self._epoch = 0
        self._place = 0
        self._order: Sequence[int] = ()
        self._loaded: int | None = None  # tasks that a loaded state is of

    def open(self, defaults: TaskDefaults, refuse_bad: RefuseBad) -> None:
        refuse_bad(self._given)
        if isinstance(self._given, Path | str):
            reader = TaskReader(defaults, number_repeated_ids=True)
            self._tasks = TaskFile(reader, Path(self._given))
            if not self._tasks:
                raise UserError(f"{self._given}: no tasks found")
        else:
            self._tasks = [as_message(one, defaults, at) for at, one in enumerate(self._given)]
        if self._loaded is not None and self._loaded != len(self._tasks):
            raise UserError(
                f"tasks: the state has {self._loaded} tasks, but this TaskSet has "
                f"{len(self._tasks)}; "
                "resume with the same tasks"
            )
        self._order = self._ordered()

    def draw(self) -> DrawnTask | None:
        if self._place == len(self._tasks):
            if not self._tasks or self._epoch + 1 == self._epochs:
                return None
            self._epoch, self._place = self._epoch + 1, 0
            self._order = self._ordered()
        at = self._order[self._place]
        task = pb.Task()
        task.CopyFrom(self._tasks[at])
        if self._seed is not None and not task.HasField("seed"):
            task.seed = random.Random(f"{self._seed}-{self._epoch}-{at}").getrandbits(_SEED_BITS)
        self._place += 1
        return DrawnTask(task)

    def observe(self, source: str, group: RolloutGroup, rejected: str) -> None:
        """The order doesn't depend on rewards."""

    def state_dict(self) -> SourceState:
        count = len(self._tasks) or self._loaded or 0
        return {"tasks": count, "epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: SourceState) -> None:
        self._loaded = int(state["tasks"]) or None
        self._epoch, self._place = int(state["epoch"]), int(state["place"])
        if self._tasks:
            self._order = self._ordered()

    def _ordered(self) -> Sequence[int]:
        places = range(len(self._tasks))
        if self._shuffle is None:
            return places
        order = random.Random(f"{self._shuffle}-{self._epoch}")
        return order.sample(places, len(places))


class Stages(TaskStream):
    """A curriculum: tasks in stages. The next stage begins when the rewards of the current stage
    are high enough.

        Stages([easy, medium, hard], advance_at=0.8, over=64)

    Args:
        stages: lists of tasks or task files, or `TaskSet`s, the first stage first.
        advance_at: the next stage begins when the mean reward of the last `over` groups of the
            current stage is at least this.
        over: the number of groups.
    """

    def __init__(
        self,
        stages: Sequence[TaskSet | Sequence[TaskLike] | Path | str],
        *,
        advance_at: float,
        over: int = 32,
    ) -> None:
        if not stages:
            raise ValueError("stages: must contain at least one stage")
        if over < 1:
            raise ValueError(f"over: must be at least 1, not {over}")
        self._stages = [one if isinstance(one, TaskSet) else TaskSet(one) for one in stages]
        self._advance_at = advance_at
        self._recent: deque[float] = deque(maxlen=over)
        self._stage = 0

    @property
    def stage(self) -> int:
        """The stage that tasks are drawn from, from 0."""
        return self._stage

    def open(self, defaults: TaskDefaults, refuse_bad: RefuseBad) -> None:
        for number, one in enumerate(self._stages):
            with _named(f"stages[{number}]"):
                one.open(defaults, refuse_bad)

    def draw(self) -> DrawnTask | None:
        drawn = self._stages[self._stage].draw()
        return None if drawn is None else DrawnTask(drawn.task, str(self._stage))

    def observe(self, source: str, group: RolloutGroup, rejected: str) -> None:
        if source != str(self._stage) or not group.rewards:
            return  # a task of an earlier stage says nothing about this one
        self._recent.append(fmean(group.rewards))
        full = len(self._recent) == self._recent.maxlen
        if full and fmean(self._recent) >= self._advance_at and self._stage + 1 < len(self._stages):
            self._stage += 1
            self._recent.clear()

    def state_dict(self) -> SourceState:
        stages = [one.state_dict() for one in self._stages]
        return {"stage": self._stage, "recent": list(self._recent), "stages": stages}

    def load_state_dict(self, state: SourceState) -> None:
        if len(state["stages"]) != len(self._stages):
            raise UserError(
                f"tasks: the state has {len(state['stages'])} stages, but these Stages have "
                f"{len(self._stages)}; resume with the same stages"
            )
        self._stage = int(state["stage"])
        self._recent.clear()
        self._recent.extend(map(float, state["recent"]))
        for one, saved in zip(self._stages, state["stages"], strict=True):
            one.load_state_dict(saved)


class Mix(TaskStream):
    """Several sources of tasks, drawn in proportion to their weights.

        mix = Mix({"math": math_rows, "code": Stages([easy, hard], advance_at=0.7)},
                  weights={"math": 2.0, "code": 1.0})
        mix.weights = {"math": 1.0, "code": 3.0}  # from the next draw on

    Args:
        sources: by name: a list of tasks, a task file, a `TaskSet` or `Stages`. Each task row
            names its environment.
        weights: the weight of each source by name; the default weight is 1. A source with weight 0
            is not drawn.

    Attributes:
        counts: for each source: `tasks` drawn, `groups` finished, `kept` and `rejected` by the
            rules of steps.
    """

    def __init__(
        self,
        sources: Mapping[str, TaskStream | Sequence[TaskLike] | Path | str],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if not sources:
            raise ValueError("sources: must contain at least one source")
        self._sources: dict[str, TaskStream] = {}
        for name, given in sources.items():
            if isinstance(given, Mix):
                raise TypeError(f"sources: {name}: a Mix can't contain another Mix")
            self._sources[name] = given if isinstance(given, TaskStream) else TaskSet(given)
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in self._sources}
        self._credits = dict.fromkeys(self._sources, 0.0)
        self._ended: set[str] = set()
        self._weights: dict[str, float] = {}
        self.weights = weights or {}

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each source. Setting it raises ValueError for a bad one."""
        return dict(self._weights)

    @weights.setter
    def weights(self, weights: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if name not in self._sources:
                known = ", ".join(self._sources)
                raise ValueError(f"weights: there is no source {name!r}; known sources: {known}")
            if not 0 <= weight < math.inf:
                raise ValueError(f"weights: {name}: must be a number of at least 0, not {weight}")
        whole = dict.fromkeys(self._sources, 1.0) | dict(weights)
        if not any(whole.values()):
            raise ValueError("weights: at least one must be above 0")
        self._weights = whole

    def open(self, defaults: TaskDefaults, refuse_bad: RefuseBad) -> None:
        for name, one in self._sources.items():
            with _named(f"sources[{name!r}]"):
                one.open(defaults, refuse_bad)

    def draw(self) -> DrawnTask | None:
        while (name := self._turn()) is not None:
            drawn = self._sources[name].draw()
            if drawn is None:
                self._ended.add(name)
                self._credits[name] = 0.0
                continue
            self.counts[name]["tasks"] += 1
            return DrawnTask(drawn.task, f"{name}/{drawn.source}" if drawn.source else name)
        return None

    def observe(self, source: str, group: RolloutGroup, rejected: str) -> None:
        name, _, within = source.partition("/") if source not in self._sources else (source, "", "")
        if name not in self._sources:
            return  # a group carried from a collector that had other sources
        self.counts[name].update({"groups": 1, "rejected" if rejected else "kept": 1})
        self._sources[name].observe(within, group, rejected)

    def state_dict(self) -> SourceState:
        return {
            "weights": dict(self._weights),
            "credits": dict(self._credits),
            "ended": sorted(self._ended),
            "counts": {name: dict(counts) for name, counts in self.counts.items()},
            "sources": {name: one.state_dict() for name, one in self._sources.items()},
        }

    def load_state_dict(self, state: SourceState) -> None:
        if state["sources"].keys() != self._sources.keys():
            raise UserError(
                f"tasks: the state has the sources {', '.join(state['sources'])}, but this Mix has "
                f"{', '.join(self._sources)}; resume with the same sources"
            )
        self.weights = state["weights"]
        self._credits = dict(state["credits"])
        self._ended = set(state["ended"])
        self.counts = {name: Counter(counts) for name, counts in state["counts"].items()}
        for name, saved in state["sources"].items():
            self._sources[name].load_state_dict(saved)

    def _turn(self) -> str | None:
        """The source whose turn it is: over time each has its share, without a random choice."""
        shares = {
            name: weight
            for name, weight in self._weights.items()
            if weight and name not in self._ended
        }
        if not shares:
            return None
        for name, weight in shares.items():
            self._credits[name] += weight
        chosen = max(shares, key=lambda name: self._credits[name])
        self._credits[chosen] -= sum(shares.values())
        return chosen


def as_source(tasks: TaskStream | Sequence[TaskLike] | Path | str) -> TaskStream:
    """A source of what a collector was given. Raises UserError for an iterator."""
    return tasks if isinstance(tasks, TaskStream) else TaskSet(tasks)


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Say in a UserError which part of the tasks it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{part}: {error}") from None
