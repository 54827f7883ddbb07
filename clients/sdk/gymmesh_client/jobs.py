"""What a run has to do: its rollouts without an outcome, and what is asked for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collect_options import CollectOptions
from gymmesh_client.groups import GroupBook
from gymmesh_client.order import Job, arrange
from gymmesh_client.output import RunOutput
from gymmesh_client.shelf import GroupShelf

_SEED_STEP: Final = 1_000_003
# Of the class: a message looks through the names of its fields to find its own methods.
_HAS: Final = pb.Task.HasField


def missing_jobs(
    tasks: Iterable[pb.Task],
    output: RunOutput,
    options: CollectOptions,
    groups: GroupBook,
    shelf: GroupShelf | None,
) -> Iterator[Job]:
    """The rollouts without an outcome, in their order; `groups` and `shelf` are told of each task
    before the first of its rollouts comes.
    """
    everything, has_outcome = range(options.repeats), output.has_outcome
    # Each rollout is asked about before it is begun, so what there is by then is of earlier runs.
    begun_before = output.outcomes > 0
    for task, turn in arrange(tasks, options.repeats, options.order, options.length):
        # Asked for again and again, and the same for all repeats.
        task_id, environment, agent = task.task_id, task.environment, task.agent
        missing: Sequence[int] = turn
        if begun_before:
            missing = [one for one in turn if not has_outcome(task_id, one)]
        if turn.start == 0:
            later = range(turn.stop, everything.stop)
            count = len(missing) + len(later)
            if begun_before:
                count -= sum(has_outcome(task_id, one) for one in later)
            groups.expect(task_id, count)
            if shelf is not None and count:
                shelf.expect(task, count, options.repeats)
        names = output.rollout_ids(task_id, missing)
        for repeat, name in zip(missing, names, strict=True):
            yield Job(task, repeat, environment, agent, task_id, name)


def request_for(
    job: Job, attempt: int, run_id: str, options: agent_pb2.RolloutOptions | None
) -> agent_pb2.RunRolloutRequest:
    """What an agent is asked for; the task is copied."""
    task = job.task
    # Field by field, which is half the price of the constructor's keywords.
    request = agent_pb2.RunRolloutRequest()
    request.task.CopyFrom(task)
    request.rollout_id = job.rollout_id
    request.attempt = attempt
    request.run_id = run_id
    if options is not None:
        request.options.CopyFrom(options)
    if _HAS(task, "seed"):
        request.task.seed = repeat_seed(task.seed, job.repeat_index)
    return request


def repeat_seed(seed: int, repeat_index: int) -> int:
    """A repeat's seed: the task's for repeat 0, another one for each further repeat."""
    shifted = seed + _SEED_STEP * repeat_index
    return (shifted + 2**63) % 2**64 - 2**63
