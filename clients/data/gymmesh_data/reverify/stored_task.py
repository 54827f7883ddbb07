"""The task and the transcript that a row gives back, as its verifier received them. Pure.

`gymmesh_data.tasks` says which keys of a row are the task's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout, object_of, text_of
from gymmesh_data.tasks import payload_of
from gymmesh_responses import CodecError, dumps, items_from_json, params_from_json


def stored_task(rollout: StoredRollout, environment: str, known: Collection[str] = ()) -> pb.Task:
    """The task of a rollout, from its row alone.

    Args:
        environment: the name of the environment that will judge the task.
        known: keys that tasks of the environment have.

    Raises:
        UserError: the row does not hold a valid task.
    """
    row = rollout.row
    try:
        task = pb.Task(
            task_id=rollout.task_id,
            environment=environment,
            agent=rollout.agent,
            params=params_from_json(dict(rollout.columns.params)),
            payload_json=dumps(payload_of(row, known)),
            tags=row.get("tags") or {},
        )
        if (seed := seed_of(row)) is not None:
            task.seed = seed
    except (CodecError, TypeError, ValueError) as error:
        raise UserError(f"{rollout.where}: does not hold a valid task: {error}") from None
    return task


def seed_of(row: dict[str, Any]) -> int | None:
    """The seed of a rollout's session: the task's seed, or the seed that was drawn."""
    seeds = (row.get("seed"), object_of(row, "metadata").get("seed"))
    return next((one for one in seeds if type(one) is int and -(2**63) <= one < 2**63), None)


def transcript_of(rollout: StoredRollout) -> list[responses_pb2.Item]:
    """The items after the rollout's first items, as the verifier received them.

    Raises:
        UserError: an item is invalid.
    """
    try:
        return items_from_json(rollout.columns.items(rollout.columns.response.output))
    except CodecError as error:
        raise UserError(f"{rollout.where}: response.output: {error}") from None


def final_state_of(rollout: StoredRollout) -> pb.FinalState | None:
    """The final state of the rollout's session; None if it was not kept."""
    kept = _kept_state(rollout)
    return pb.FinalState(state_json=dumps(kept["state"])) if "state" in kept else None


def omitted_state(rollout: StoredRollout) -> str:
    """Why the state was not kept, as the reason for skipping a rollout; empty: unknown."""
    why = text_of(_kept_state(rollout), "omitted")
    return f"rollouts whose state was not kept: {why}" if why else ""


def _kept_state(rollout: StoredRollout) -> Json:
    """What the row says of its session's state; empty where that is anything but an object."""
    found = rollout.value("final_state")
    return found if isinstance(found, dict) else {}


def stop_reason_of(rollout: StoredRollout) -> pb.StopReason.ValueType:
    """Why the rollout stopped. If the row has no stop reason: the model finished."""
    named: dict[str, pb.StopReason.ValueType] = dict(pb.StopReason.items())
    return named.get(f"STOP_REASON_{rollout.stop_reason}") or pb.STOP_REASON_MODEL_FINISHED
