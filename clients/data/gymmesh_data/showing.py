"""Finds the rollout to show: the first, the best, the worst, one by its id, or a task's repeats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gymmesh_client import open_run
from gymmesh_data.rollout import StoredRollout, rollout_of_line
from gymmesh_data.sources import failures_of, is_run, read_rollouts


def first_of(path: Path) -> list[StoredRollout]:
    """The first rollout. If no rollout of the run completed: the first failed rollout."""
    return list(islice(_all(path), 1))


def best_of(path: Path) -> list[StoredRollout]:
    """The rollout with the highest reward; None if no rollout has a reward.

    If several are equal, the first by task id and repeat.
    """
    found = min(_judged(path), key=lambda one: (-one[0], *_place(one[1])), default=None)
    return [] if found is None else [found[1]]


def worst_of(path: Path) -> list[StoredRollout]:
    """The rollout with the lowest reward; as `best_of`."""
    found = min(_judged(path), key=lambda one: (one[0], *_place(one[1])), default=None)
    return [] if found is None else [found[1]]


def _place(rollout: StoredRollout) -> tuple[str, int]:
    return rollout.task_id, rollout.repeat_index


def of_id(path: Path, rollout_id: str) -> list[StoredRollout]:
    """The rollout with this id, completed or failed. In a run the look-up is fast; for other files,
    the whole file is read.
    """
    if not is_run(path):
        return next(([one] for one in _all(path) if one.rollout_id == rollout_id), [])
    with open_run(path) as run:
        line = run.line(rollout_id)
    return [] if line is None else [rollout_of_line(line, f"{path}: rollout {rollout_id}")]


def of_task(path: Path, task_id: str, repeat: int | None = None) -> list[StoredRollout]:
    """A task's rollouts in the order of their repeats, or one repeat; found as by `of_id`."""
    if is_run(path):
        with open_run(path) as run:
            lines = [run.line(name) for name in run.task_rollouts(task_id)]
        where = f"{path}: task {task_id}"
        found = [rollout_of_line(line, where) for line in lines if line is not None]
    else:
        found = [one for one in _all(path) if one.task_id == task_id]
    found.sort(key=lambda one: one.repeat_index)
    return [one for one in found if repeat is None or one.repeat_index == repeat]


def _judged(path: Path) -> Iterator[tuple[float, StoredRollout]]:
    return ((one.reward, one) for one in _all(path) if one.reward is not None)


def _all(path: Path) -> Iterator[StoredRollout]:
    """The completed rollouts, then those that failed."""
    yield from read_rollouts([path])
    if is_run(path):
        with suppress(FileNotFoundError):
            yield from failures_of(path)
