"""What a run has to do: its rollouts without an outcome, and the request for an attempt of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.options import CollectOptions
from gymmesh_client.collector.order import arrange
from gymmesh_client.collector.outcomes import Outcomes
from gymmesh_client.groups import GroupStore, JudgedGroups

_SEED_STEP: Final = 1_000_003


class RolloutRequest(msgspec.Struct, gc=False):
    """A rollout to collect; `group` is its task's id, and `rollout_id` that of every attempt."""

    task: pb.Task
    repeat_index: int
    environment: str
    agent: str
    group: str
    rollout_id: str


def missing_rollouts(
    tasks: Iterable[pb.Task],
    output: Outcomes,
    options: CollectOptions,
    judged: JudgedGroups,
    store: GroupStore | None,
) -> Iterator[RolloutRequest]:
    """The rollouts without an outcome, in their order.

    `judged` and `store` are given each task before its first rollout is yielded. The rollouts end
    when the store begins no further groups.
    """
    everything, has_outcome = range(options.repeats), output.has_outcome
    # Each rollout is looked up before it is begun, so what there is by then is of earlier runs.
    begun_before = output.outcomes > 0
    for task, turn in arrange(tasks, options.repeats, options.order, options.length):
        if store is not None and not store.begins:
            return  # with groups, a task's repeats come together: no turn is of a begun one
        # The same for all repeats, and a message's fields are expensive to read.
        task_id, environment, agent = task.task_id, task.environment, task.agent
        missing: Sequence[int] = turn
        if begun_before:
            missing = [one for one in turn if not has_outcome(task_id, one)]
        if turn.start == 0:
            later = range(turn.stop, everything.stop)
            count = len(missing) + len(later)
            if begun_before:
                count -= sum(has_outcome(task_id, one) for one in later)
            in_part = begun_before and count and output.has_completed(task_id, everything.stop)
            judged.expect(task_id, count, in_part=bool(in_part))
            if store is not None and count:
                store.expect(task, count, options.repeats)
        names = output.rollout_ids(task_id, missing)
        for repeat, name in zip(missing, names, strict=True):
            yield RolloutRequest(task, repeat, environment, agent, task_id, name)


def agent_request(
    rollout: RolloutRequest, attempt: int, run_id: str, options: agent_pb2.RolloutOptions | None
) -> agent_pb2.RunRolloutRequest:
    """The request that has an agent run an attempt; the task is copied."""
    task = rollout.task
    # Field by field, which is half the price of the constructor's keywords.
    request = agent_pb2.RunRolloutRequest()
    request.task.CopyFrom(task)
    request.rollout_id = rollout.rollout_id
    request.attempt = attempt
    request.run_id = run_id
    if options is not None:
        request.options.CopyFrom(options)
    if task.HasField("seed"):
        request.task.seed = repeat_seed(task.seed, rollout.repeat_index)
    return request


def repeat_seed(seed: int, repeat_index: int) -> int:
    """A repeat's seed: the task's for repeat 0, another one for each further repeat."""
    shifted = seed + _SEED_STEP * repeat_index
    return (shifted + 2**63) % 2**64 - 2**63
