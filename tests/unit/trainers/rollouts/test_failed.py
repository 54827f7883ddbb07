"""What a failed rollout says of itself."""

from __future__ import annotations

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_runtime.errors import MeshError, Reason, to_status
from gymmesh_trainers import FailedRollout


def failed(boundary: int) -> FailedRollout:
    message = pb.Rollout()
    failure = message.failed.failure
    failure.boundary = boundary  # type: ignore[assignment]  # a number of a later contract, too
    error = MeshError(Reason.ERROR_REASON_MODEL_TIMEOUT, "it took too long")
    failure.status.CopyFrom(to_status(error))
    return FailedRollout(message, Task(pb.Task(task_id="t")))


def test_where_and_why() -> None:
    one = failed(pb.BOUNDARY_MODEL)
    assert (one.boundary, one.reason, one.why) == ("MODEL", "MODEL_TIMEOUT", "it took too long")


def test_a_boundary_of_a_later_contract_is_its_number() -> None:
    assert failed(99).boundary == "99"
