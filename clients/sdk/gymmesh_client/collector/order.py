"""The order in which a run's rollouts are started. Pure.

tasks           all repeats of a task, then those of the next: groups are complete early
interleaved     one repeat of every task, then the next repeat: every task is tried early
longest-first   as `tasks`, the longest tasks first, so that no long task starts at the end
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.summary import tokens_of

# A rule of thumb: so many bytes of a prompt count as one token of an answer.
_BYTES_PER_TOKEN: Final = 4.0


class Order(enum.Enum):
    """The order in which rollouts start."""

    TASKS = "tasks"
    INTERLEAVED = "interleaved"
    LONGEST_FIRST = "longest-first"


def arrange(
    tasks: Iterable[pb.Task],
    repeats: int,
    order: Order,
    length: Callable[[pb.Task], float] | None = None,
) -> Iterator[tuple[pb.Task, range]]:
    """Each task with the repeats that are its turn; over all turns, every repeat once.

    The tasks are read as they are needed. `interleaved` reads them once for each repeat, and
    `longest-first` once for their lengths, of which it keeps 8 bytes a task, and then each by its
    index.

    Args:
        length: how long a rollout of a task will be, in tokens; by default the prompt's size.

    Raises:
        ValueError: the tasks can be read once only, or not by index, and the order needs it.
    """
    everything = range(repeats)
    if order is Order.TASKS:
        for task in tasks:
            yield task, everything
    elif order is Order.INTERLEAVED:
        if iter(tasks) is tasks:
            raise ValueError(
                "order interleaved reads the tasks several times. Pass a list instead of an "
                "iterator"
            )
        for repeat in everything:
            for task in tasks:
                yield task, range(repeat, repeat + 1)
    else:
        if not isinstance(tasks, Sequence):
            raise ValueError("order longest-first reads the tasks by index. Pass a list of tasks")
        lengths = array("d", map(length or prompt_length, tasks))
        for index in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
            yield tasks[index], everything


def prompt_length(task: pb.Task) -> float:
    """A guess from the size of a task's prompt, in tokens."""
    return task.params.ByteSize() / _BYTES_PER_TOKEN


def length_from(rows: Iterable[Mapping[str, Any]]) -> Callable[[pb.Task], float]:
    """How long rollouts are by the rows of an earlier run: the mean of a task's output tokens.

    Tasks that the rows do not know are guessed by their prompt.
    """
    known: dict[str, tuple[int, int]] = {}
    for row in rows:
        tokens, count = known.get(str(row.get("task_id")), (0, 0))
        known[str(row.get("task_id"))] = tokens + tokens_of(row)[1], count + 1

    def length(task: pb.Task) -> float:
        found = known.get(task.task_id)
        return prompt_length(task) if found is None else found[0] / found[1]

    return length
