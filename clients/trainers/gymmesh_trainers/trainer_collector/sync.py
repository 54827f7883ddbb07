"""The same for trainers that are not asynchronous: the mesh runs in its own thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup
from gymmesh_trainers.trainer_collector.collector import TrainerCollector
from gymmesh_trainers.trainer_collector.evaluation import Evaluation
from gymmesh_trainers.trainer_collector.filters import Keep
from gymmesh_trainers.trainer_collector.loop_thread import LoopThread
from gymmesh_trainers.trainer_collector.place import MeshPlace, Model
from gymmesh_trainers.trainer_collector.settings import with_settings
from gymmesh_trainers.trainer_collector.steps import Leftovers, Step, StepEnd
from gymmesh_trainers.trainer_collector.tasks import TaskLike, Tasks
from gymmesh_trainers.weights import WeightsPush

T = TypeVar("T")


class SyncStep:
    """Step for synchronous code: a context manager and an iterator of groups.

    with collector.step(tasks, groups=32, leftovers="drop") as step:
        for group in step: ...
    """

    def __init__(self, step: Step, thread: LoopThread) -> None:
        self._step = step
        self._thread = thread

    def __enter__(self) -> SyncStep:
        self._thread.run(self._step.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.run(self._step.__aexit__(*error))

    def __iter__(self) -> Iterator[RolloutGroup]:
        groups = aiter(self._step)
        try:
            while (group := self._thread.run(anext(groups, None))) is not None:
                yield group
        finally:
            self._thread.run(groups.aclose())

    def __repr__(self) -> str:
        return f"<Sync{repr(self._step).removeprefix('<')}"

    @property
    def number(self) -> int:
        return self._step.number

    @property
    def counts(self) -> Counter[str]:
        return self._step.counts

    @property
    def rejected(self) -> Counter[str]:
        return self._step.rejected

    @property
    def ended(self) -> StepEnd:
        return self._step.ended

    def close(self) -> None:
        self._thread.run(self._step.close())


class SyncCollector:
    """TrainerCollector for synchronous code; a context manager. Arguments and members are the same.

    Use it from one thread. An engine's `generate` is called in the mesh's thread.
    """

    def __init__(self, place: MeshPlace, **options: Any) -> None:
        self._collector = TrainerCollector(place, **options)
        self._thread = LoopThread()

    def __enter__(self) -> SyncCollector:
        self._thread.start()
        try:
            self._thread.run(self._collector.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._thread.run(self._collector.__aexit__(*error))
        finally:
            self._thread.end()

    @property
    def counts(self) -> Counter[str]:
        return self._collector.counts

    @property
    def weights_version(self) -> int | None:
        return self._collector.weights_version

    @property
    def next_step(self) -> int:
        return self._collector.next_step

    def set_weights_version(self, version: int, *, adapter: str = "") -> None:
        self._thread.run(self._collector.set_weights_version(version, adapter=adapter))

    def push_weights(self, folder: Path | str, version: int, **options: Any) -> WeightsPush:
        """As TrainerCollector.push_weights. options: its other arguments."""
        return self._thread.run(self._collector.push_weights(folder, version, **options))

    def step(
        self,
        tasks: Tasks | None = None,
        *,
        groups: int | None = None,
        keep: Keep | Sequence[Keep] | None = None,
        at_most: int | None = None,
        leftovers: Leftovers = "keep",
        ordered: bool = False,
        number: int | None = None,
    ) -> SyncStep:
        step = self._collector.step(
            tasks,
            groups=groups,
            keep=keep,
            at_most=at_most,
            leftovers=leftovers,
            ordered=ordered,
            number=number,
        )
        return SyncStep(step, self._thread)

    def evaluate(
        self,
        tasks: Tasks,
        *,
        params: Mapping[str, Any] | None = None,
        repeats: int = 1,
        output: Path | None = None,
    ) -> Evaluation:
        return self._thread.run(
            self._collector.evaluate(tasks, params=params, repeats=repeats, output=output)
        )

    def state_dict(self) -> dict[str, Any]:
        return self._thread.run(_called(self._collector.state_dict))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._collector.load_state_dict(state)

    def one(self, task: TaskLike, *, repeat: int = 0) -> Rollout | FailedRollout:
        return self._thread.run(self._collector.one(task, repeat=repeat))

    def many(
        self, tasks: Sequence[TaskLike], *, first_repeat: int = 0
    ) -> list[Rollout | FailedRollout]:
        return self._thread.run(self._collector.many(tasks, first_repeat=first_repeat))


@with_settings
def collect_sync(
    place: MeshPlace,
    tasks: Tasks,
    *,
    model: Model | None = None,
    model_name: str = "",
    **options: Any,
) -> Iterator[RolloutGroup]:
    """`collect` for synchronous code, with the same arguments."""
    with (
        SyncCollector(place, model=model, model_name=model_name, **options) as collector,
        collector.step(tasks, number=1) as step,
    ):
        yield from step


async def _called(function: Callable[[], T]) -> T:
    """Call in the mesh's thread."""
    return function()
