"""The choices of a task: what an environment returns, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_resource import Environment, Rollout, Session, Task
from gymmesh_runtime.errors import MeshError
from tests.unit.resource.served import TIMEOUT, Served, new_id, served, task


class Listed(Environment[None]):
    """Returns what its task has."""

    def choices(self, task: Task) -> Any:
        return task.payload["choices"]

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


class Open(Environment[None]):
    """Has no choices."""

    def verify(self, session: Session[None], rollout: Rollout) -> float:
        return 1.0


async def asked(one: Served, choices: Any) -> resource_pb2.CreateSessionResponse:
    request = resource_pb2.CreateSessionRequest(
        task=task(choices=choices), request_id=new_id(), wants_choices=True
    )
    return await one.resource.CreateSession(request, timeout=TIMEOUT)  # type: ignore[no-any-return]


async def test_choices_come_with_the_session() -> None:
    async with served(Listed()) as one:
        assert list((await asked(one, ["b", "a"])).choices) == ["b", "a"]
        assert not (await asked(one, [])).choices


async def test_an_environment_without_choices_has_none() -> None:
    async with served(Open()) as one:
        assert not (await asked(one, ["a"])).choices


@pytest.mark.parametrize("choices", ["ab", ["a", ""], ["a", 1], None, 5])
async def test_what_is_not_a_list_of_texts_is_the_environments_fault(choices: Any) -> None:
    async with served(Listed()) as one:
        with pytest.raises(MeshError) as raised:
            await asked(one, choices)
    assert raised.value.reason_name == "ENVIRONMENT_FAULT"
    assert "must return a list of texts" in raised.value.message
