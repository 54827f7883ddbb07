"""The same for trainers that are not asynchronous: the mesh runs in a thread of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gymmesh_trainers.collecting.collector import TrainerCollector
from gymmesh_trainers.collecting.loop_thread import LoopThread
from gymmesh_trainers.collecting.place import MeshPlace, Model
from gymmesh_trainers.collecting.settings import with_settings
from gymmesh_trainers.collecting.tasks import TaskLike, Tasks
from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup


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

    def set_weights_version(self, version: int) -> None:
        self._thread.run(self._collector.set_weights_version(version))

    def step(self, tasks: Tasks, *, groups: int | None = None) -> Iterator[RolloutGroup]:
        found = self._collector.step(tasks, groups=groups)
        try:
            while (group := self._thread.run(anext(found, None))) is not None:
                yield group
        finally:
            self._thread.run(found.aclose())

    def one(self, task: TaskLike, *, repeat: int = 0) -> Rollout | FailedRollout:
        return self._thread.run(self._collector.one(task, repeat=repeat))

    def many(self, tasks: Sequence[TaskLike]) -> list[Rollout | FailedRollout]:
        return self._thread.run(self._collector.many(tasks))


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
    with SyncCollector(place, model=model, model_name=model_name, **options) as collector:
        yield from collector.step(tasks)
