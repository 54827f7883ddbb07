"""The calls that checks make of one environment, as an agent does, and the findings."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

#: Seconds that one call may take.
CALL_S = 60.0
#: Before the reward of a verdict in words.
REWARD = "reward "
_Reason = errors_pb2.ErrorReason
#: The errors that are the environment's own.
FAULTS = frozenset(
    {
        _Reason.ERROR_REASON_ENVIRONMENT_FAULT,
        _Reason.ERROR_REASON_VERIFIER_FAULT,
        _Reason.ERROR_REASON_INTERNAL_FAULT,
        _Reason.ERROR_REASON_TOOL_TIMEOUT,
        _Reason.ERROR_REASON_VERIFIER_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `detail` is a line for people.

    `warning`: nothing is broken, but the author should look at it.
    """

    check: str
    fine: bool
    detail: str
    warning: bool = False


class Flaw(Exception):
    """A check failed; the text is for the author."""


class Warned(Exception):
    """A check passed with a warning; the text is for the author."""


class EnvironmentCalls:
    """Calls one open environment. `tasks`: replace its example tasks."""

    def __init__(
        self, service: ResourceService, directory: PeerDirectory, tasks: Sequence[rollout_pb2.Task]
    ) -> None:
        instance = discovery_pb2.Instance(
            id=service.instance_id, service=RESOURCE_SERVICE, name=service.name
        )
        directory.add_direct(instance, service.servicers())
        self.service = service
        self.resource = directory.peer(instance)
        self.verifier = directory.peer(instance, VERIFY_SERVICE)
        self._given = tasks
        self._ids = itertools.count(1)

    async def about(self) -> resource_pb2.GetEnvironmentResponse:
        """What the environment is."""
        about: resource_pb2.GetEnvironmentResponse = await self.resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=CALL_S
        )
        return about

    async def tasks(self) -> list[rollout_pb2.Task]:
        """The tasks for the checks; may be empty."""
        if self._given:
            return list(self._given)
        request = resource_pb2.ListTasksRequest(page_size=1000)
        return list((await self.resource.ListTasks(request, timeout=CALL_S)).tasks)

    async def some_tasks(self) -> list[rollout_pb2.Task]:
        """The tasks. Raises Flaw if there are none."""
        tasks = await self.tasks()
        if not tasks:
            raise Flaw("not checked, because the environment has no tasks")
        return tasks

    @asynccontextmanager
    async def session(
        self, task: rollout_pb2.Task, seed: int | None = None
    ) -> AsyncIterator[resource_pb2.CreateSessionResponse]:
        """A session, closed at the end of the block."""
        request = resource_pb2.CreateSessionRequest(task=task, seed=seed, request_id=self.new_id())
        opened = await self.resource.CreateSession(request, timeout=CALL_S)
        try:
            yield opened
        finally:
            await self.close(opened.session_id)

    async def close(self, session_id: str) -> None:
        request = resource_pb2.CloseSessionRequest(session_id=session_id)
        await self.resource.CloseSession(request, timeout=CALL_S)

    async def call(
        self, session_id: str, name: str, arguments: bytes = b"{}"
    ) -> resource_pb2.CallToolResponse:
        request = resource_pb2.CallToolRequest(
            session_id=session_id, name=name, arguments=arguments, request_id=self.new_id()
        )
        answer: resource_pb2.CallToolResponse = await self.resource.CallTool(
            request, timeout=CALL_S
        )
        return answer

    async def judge(
        self,
        session_id: str,
        task: rollout_pb2.Task,
        transcript: Sequence[responses_pb2.Item] = (),
    ) -> str:
        """The verdict on a transcript, in words. Raises MeshError for a fault."""
        request = verify_pb2.VerifyRequest(
            session_id=session_id,
            task=task,
            transcript=transcript,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        try:
            response = await self.verifier.Verify(request, timeout=CALL_S)
        except MeshError as error:
            if error.reason in FAULTS or error.reason == _Reason.ERROR_REASON_TASK_INVALID:
                raise
            return error.reason_name
        verdict = response.verification
        if verdict.HasField("reward"):
            return f"{REWARD}{verdict.reward:g}"
        name = rollout_pb2.VerificationStatus.Name(verdict.status)
        return name.removeprefix("VERIFICATION_STATUS_")

    def new_id(self) -> str:
        return f"trial-{next(self._ids)}"
