"""Makes groups of finished rollouts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_trainers.rollouts import FailedRollout, Rollout, RolloutGroup, versions_of
from gymmesh_trainers.trainer_collector.weights import WeightsVersions


def judged(
    message: pb.Rollout, task: Task, weights: WeightsVersions, folders: tuple[Path, ...] = ()
) -> Rollout:
    """A completed rollout with its staleness; its versions are seen.

    folders: see `Rollout.side_data_folders`.
    """
    versions = versions_of(message)  # those of other models are none of the policy's
    for version in versions:
        if version is not None:
            weights.see(version)
    staleness = weights.staleness(versions)
    return Rollout(message, task, staleness, weights.is_stale(versions), folders)


def grouped(
    group: RolloutGroup,
    rollouts: Sequence[pb.Rollout],
    weights: WeightsVersions,
    *,
    drop_stale: bool = False,
    folders: tuple[Path, ...] = (),
) -> RolloutGroup:
    """Put the rollouts of a task into its group, by repeat; the group. folders: as for `judged`."""
    for message in sorted(rollouts, key=lambda one: one.repeat_index):
        if not message.HasField("completed"):
            group.failed.append(FailedRollout(message, group.task))
            continue
        rollout = judged(message, group.task, weights, folders)
        if rollout.stale and drop_stale:
            group.stale.append(rollout)
        elif rollout.reward is None:
            group.unscored.append(rollout)
        else:
            group.rollouts.append(rollout)
    return group
