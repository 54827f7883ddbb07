"""Items that cannot be read are the caller's mistake, not a fault of the environment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource import Environment, Member, Rollout, Session, Task, Transcript, Turn
from gymmesh_responses import CodecError, new_message, text_of
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import TIMEOUT, served, task

Reason = errors_pb2.ErrorReason


class Reader(Environment[None]):
    """Reads all items, the task's and those that it is told; or stumbles by itself."""

    def check_task(self, task: Task) -> None:
        for item in task.message.params.input:
            text_of(item)

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        if rollout.task.payload.get("own"):
            raise CodecError("of the environment's own")
        return float(len(rollout.answer))

    def next_turn(self, session: Session[None], new: Transcript) -> Turn:
        return Turn(new.answer, done=True)

    def verify_group(self, task: Task, members: Sequence[Member]) -> list[float]:
        return [float(len(member.rollout.answer)) for member in members]


def unreadable() -> responses_pb2.Item:
    item = new_message("assistant", "4")
    item.message.parts.parts.add()  # of no kind
    return item


def told(caught: pytest.ExceptionInfo[MeshError]) -> tuple[Reason.ValueType, str]:
    return caught.value.reason, caught.value.metadata["field"]


async def test_items_of_a_request() -> None:
    items = [new_message("assistant", "4"), unreadable()]
    async with served(Reader()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(transcript=items)
        assert told(caught) == (Reason.ERROR_REASON_FIELD_INVALID, "transcript[1]")
        assert "cannot be read" in caught.value.message
        session = await mesh.create()
        with pytest.raises(MeshError) as caught:
            await mesh.turn(session.session_id, items)
        assert told(caught) == (Reason.ERROR_REASON_FIELD_INVALID, "new_items[1]")
        member = verify_pb2.GroupMember(
            rollout_id="r", stop_reason=rollout_pb2.STOP_REASON_MAX_STEPS, transcript=items
        )
        group = verify_pb2.VerifyGroupRequest(task=task(), members=[member])
        with pytest.raises(MeshError) as caught:
            await mesh.verifier.VerifyGroup(group, timeout=TIMEOUT)
        assert told(caught) == (Reason.ERROR_REASON_FIELD_INVALID, "members[0].transcript[1]")


async def test_items_of_a_task() -> None:
    asked = task()
    asked.params.input.append(unreadable())
    async with served(Reader()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(asked)
    assert told(caught) == (
        Reason.ERROR_REASON_TASK_INVALID,
        "responses_create_params.input[0]",
    )


async def test_what_the_environment_cannot_read_itself_is_its_fault() -> None:
    async with served(Reader()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.verify(of=task(own=True), transcript=[new_message("assistant", "4")])
    assert caught.value.reason == Reason.ERROR_REASON_VERIFIER_FAULT
