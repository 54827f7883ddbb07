"""A client of one environment that is served somewhere: its sessions, tools and verdicts.

async with connect("127.0.0.1:9500") as desk, desk.session() as session:
    print(await session.call("number"), (await session.verify("It is 5.")).reward)
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_mesh.verifying import RESOURCE, remote_environments
from gymmesh_resource import Task
from gymmesh_resource.service import VERIFY_SERVICE
from gymmesh_responses import dumps, new_message, text_of
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig

_CALL_S: Final = 300.0
_CLOSE_S: Final = 10.0


@asynccontextmanager
async def connect(
    address: str, *, security: SecurityConfig | None = None
) -> AsyncIterator[EnvironmentClient]:
    """Connect to the environment at HOST:PORT, the address that `gym-cli serve environment` prints.

    security: certificates and a token to present. Raises MeshError if the environment does not
    answer, and ConfigError if the certificates cannot be used.
    """
    async with remote_environments([address], security=security) as directory:
        found = [one for one in directory.instances() if one.service == RESOURCE]
        if len(found) != 1:
            raise ConfigError(
                f"{address} has {len(found)} environments; pass an address with exactly one "
                "environment"
            )
        (instance,) = found
        resource = directory.peer(instance)
        about = await resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=_CLOSE_S
        )
        yield EnvironmentClient(about, resource, directory.peer(instance, VERIFY_SERVICE))


class EnvironmentClient:
    """A client of a served environment.

    Attributes:
        about: the environment's description of itself.
    """

    def __init__(
        self, about: resource_pb2.GetEnvironmentResponse, resource: Any, verifier: Any
    ) -> None:
        self.about = about
        self._resource = resource
        self._verifier = verifier

    async def tasks(self) -> list[Task]:
        """The environment's example tasks. Raises MeshError."""
        found: list[Task] = []
        token = ""
        while True:
            request = resource_pb2.ListTasksRequest(page_token=token)
            reply = await self._resource.ListTasks(request, timeout=_CALL_S)
            found += map(Task, reply.tasks)
            token = reply.next_page_token
            if not token:
                return found

    @asynccontextmanager
    async def session(
        self, task: Task | Mapping[str, Any] | None = None, *, seed: int | None = None
    ) -> AsyncIterator[EnvironmentSession]:
        """Open a session for a task row, or for the first example if `task` is None. The session is
        closed when the context ends.

        Raises MeshError, and ConfigError if the environment has no example.
        """
        if task is None:
            examples = await self.tasks()
            if not examples:
                raise ConfigError(
                    f"environment {self.about.name!r} has no example tasks; pass `task`"
                )
            task = examples[0]
        known = task if isinstance(task, Task) else Task.of(task)
        message = rollout_pb2.Task()
        message.CopyFrom(known.message)
        message.environment = self.about.name
        request = resource_pb2.CreateSessionRequest(
            task=message, seed=seed, request_id=f"client-{uuid.uuid4().hex}"
        )
        opened = await self._resource.CreateSession(request, timeout=_CALL_S)
        try:
            yield EnvironmentSession(Task(message), opened, self._resource, self._verifier)
        finally:
            close = resource_pb2.CloseSessionRequest(session_id=opened.session_id)
            with contextlib.suppress(MeshError):
                await self._resource.CloseSession(close, timeout=_CLOSE_S)


class EnvironmentSession:
    """An open session of an environment.

    Attributes:
        task: the task of the session.
        tools: the definitions of the tools, by name.
        items: the first items of the environment.
        done: whether the episode is over.
    """

    def __init__(
        self,
        task: Task,
        opened: resource_pb2.CreateSessionResponse,
        resource: Any,
        verifier: Any,
    ) -> None:
        self.task = task
        self.tools = {tool.function.name: tool.function for tool in opened.tools}
        self.items = list(opened.items)
        self.done = False
        self._id = opened.session_id
        self._resource = resource
        self._verifier = verifier
        self._transcript: list[responses_pb2.Item] = []  # after the first items
        self._turn_rewards: list[float] = []
        self._unseen = 0  # from here on, items that no turn was given yet

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool. Returns the text that the model would read. Raises MeshError."""
        call = responses_pb2.FunctionCall(
            name=name,
            call_id=f"call_{len(self._transcript) + 1}",
            arguments=dumps(arguments),
            status="completed",
        )
        request = resource_pb2.CallToolRequest(
            session_id=self._id,
            name=name,
            arguments=call.arguments,
            call_id=call.call_id,
            request_id=f"client-{uuid.uuid4().hex}",
        )
        reply: resource_pb2.CallToolResponse = await self._resource.CallTool(
            request, timeout=_CALL_S
        )
        answer = responses_pb2.FunctionCallOutput(call_id=call.call_id)
        if reply.WhichOneof("output") == "parts":
            answer.parts.CopyFrom(reply.parts)
        else:
            answer.text = reply.text
        output = responses_pb2.Item(function_call_output=answer)
        self._transcript += [responses_pb2.Item(function_call=call), output]
        self._note(reply)
        return text_of(output)

    async def say(self, text: str) -> str:
        """Send the model's answer. Returns the environment's reply if the environment takes turns.
        Raises MeshError.
        """
        self._transcript.append(new_message("assistant", text))
        request = resource_pb2.NextTurnRequest(
            session_id=self._id,
            new_items=self._transcript[self._unseen :],
            request_id=f"client-{uuid.uuid4().hex}",
        )
        turn: resource_pb2.NextTurnResponse = await self._resource.NextTurn(
            request, timeout=_CALL_S
        )
        self._transcript += turn.items
        self._unseen = len(self._transcript)
        self._note(turn)
        return "\n".join(map(text_of, turn.items))

    def _note(self, reply: resource_pb2.CallToolResponse | resource_pb2.NextTurnResponse) -> None:
        self.done = reply.done
        if reply.HasField("reward"):
            self._turn_rewards.append(reply.reward)

    async def verify(self, answer: str = "") -> rollout_pb2.Verification:
        """The verdict on the calls and messages of the session, and on a last answer. Raises
        MeshError.
        """
        transcript = list(self._transcript)
        if answer:
            transcript.append(new_message("assistant", answer))
        request = verify_pb2.VerifyRequest(
            session_id=self._id,
            task=self.task.message,
            transcript=transcript,
            turn_rewards=self._turn_rewards,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        reply: verify_pb2.VerifyResponse = await self._verifier.Verify(request, timeout=_CALL_S)
        return reply.verification
