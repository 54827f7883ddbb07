"""The one façade of an environment that all protocols use: sessions, tools, verdicts.

It calls the servicers of a resource service in the same process, as an agent of the mesh would.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.protocols.session import ProtocolSession, reward_of
from gymmesh_resource.serving import OpenSession, SessionStore
from gymmesh_responses import dumps
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError

_RESOURCE: Final = resource_pb2.DESCRIPTOR.services_by_name["ResourceService"].full_name
_VERIFY: Final = verify_pb2.DESCRIPTOR.services_by_name["VerifyService"].full_name
# The first that no tool of the environment has.
_ANSWER_NAMES: Final = ("answer", "final_answer", "submit_final_answer")
#: The argument of the answer tool.
ANSWER: Final = "answer"


class OfferedService(Protocol):
    """The resource service that is offered, as far as it is used."""

    name: str
    environment: Environment[Any]
    sessions: SessionStore[Any]

    def servicers(self) -> Mapping[str, Any]:
        """Its servicers by the full name of their gRPC service."""


class EnvironmentFacade:
    """One environment for clients that do not speak the contract.

    Where a protocol has tools and nothing else, what the policy says is one: the answer tool, which
    ends the episode, or in an environment of turns says something.
    """

    def __init__(self, service: OfferedService) -> None:
        self._service = service
        servicers = service.servicers()
        self._resource = servicers[_RESOURCE]
        self._verifier = servicers[_VERIFY]
        kind = type(service.environment)
        self._offers_others = kind.call_other is not Environment.call_other
        self._adds_tools = kind.session_tools is not Environment.session_tools
        self._known: WeakKeyDictionary[OpenSession[Any], ProtocolSession] = WeakKeyDictionary()
        self._cleanups: set[asyncio.Future[None]] = set()
        #: What the environment says of itself; empty until `ask`.
        self.about = resource_pb2.GetEnvironmentResponse()
        #: The tools that the environment offers in each session; empty until `ask`.
        self.tools: Sequence[responses_pb2.FunctionTool] = ()

    @property
    def name(self) -> str:
        """The environment's name in the mesh."""
        return self._service.name

    async def ask(self) -> None:
        """Ask the environment what it is."""
        about = resource_pb2.GetEnvironmentRequest()
        self.about = await self._resource.GetEnvironment(about, _context("GetEnvironment"))
        self.tools = [tool.function async for tool in self._listed()]

    def problem(self) -> str:
        """Why no protocol can serve the environment; empty if protocols can serve it."""
        lent = self._service.environment.declared_sandboxes().values()
        if self.about.judges_groups:
            return "its verifier compares the repeats of a task"
        if self.about.plays:
            return "it plays its episodes itself, and needs the model of a gymmesh agent"
        if any(spec.lent for spec in lent) and not (self.tools or self._adds_tools):
            return "it offers no tools, and agents work directly in its sandbox"
        return ""

    async def open(
        self, task: rollout_pb2.Task, protocol: str, seed: int | None = None
    ) -> ProtocolSession:
        """Open a session. Raises MeshError."""
        unique = f"{protocol}-{secrets.token_hex(12)}"
        request = resource_pb2.CreateSessionRequest(
            task=task, seed=seed, request_id=unique, rollout_id=unique
        )
        opening = asyncio.ensure_future(
            self._resource.CreateSession(request, _context("CreateSession"))
        )
        try:
            reply: resource_pb2.CreateSessionResponse = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The client is gone; what opens for it is closed as soon as it is open.
            cleanup = asyncio.ensure_future(self._close_lost(opening))
            self._cleanups.add(cleanup)
            cleanup.add_done_callback(self._cleanups.discard)
            raise
        return self.attach(self._service.sessions.get(reply.session_id))

    def attach(self, opened: OpenSession[Any]) -> ProtocolSession:
        """The protocol's object of an open session, the same while the session is open."""
        known = self._known.get(opened)
        if known is None:
            known = self._known[opened] = ProtocolSession(
                self._resource,
                self._verifier,
                self.about,
                opened,
                offers_others=self._offers_others,
            )
        return known

    def find(self, session_id: str) -> ProtocolSession | None:
        """An open session by its id."""
        opened = self._service.sessions.find(session_id)
        return None if opened is None else self.attach(opened)

    def is_open(self, session: ProtocolSession) -> bool:
        """Whether the environment still has the session."""
        return self._service.sessions.has(session.id)

    async def judge_without_session(
        self,
        task: rollout_pb2.Task,
        items: Sequence[responses_pb2.Item],
        stop: rollout_pb2.StopReason.ValueType,
    ) -> rollout_pb2.Verification:
        """The verdict on a transcript whose session is gone. Raises MeshError, SESSION_NOT_FOUND
        for an environment that judges by the session's state.
        """
        request = verify_pb2.VerifyRequest(task=task, transcript=items, stop_reason=stop)
        context = CallContext(f"{_VERIFY}/Verify")
        reply: verify_pb2.VerifyResponse = await self._verifier.Verify(request, context)
        reward_of(reply.verification, self.name)
        return reply.verification

    def answer_tool(
        self, tools: Sequence[responses_pb2.FunctionTool]
    ) -> responses_pb2.FunctionTool:
        """The tool by which the policy's message comes, beside these."""
        taken = {tool.name for tool in tools}
        name = next((name for name in _ANSWER_NAMES if name not in taken), "")
        if not name:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {self.name!r} has tools called {', '.join(_ANSWER_NAMES)}, so no "
                "name is free for the tool that gives the final answer. Rename one of these tools.",
            )
        schema = {
            "type": "object",
            "properties": {ANSWER: {"type": "string", "description": "The text of the message."}},
            "required": [ANSWER],
            "additionalProperties": False,
        }
        what = (
            "Say this to the environment, which then takes its turn."
            if self.about.multi_turn
            else "Give the final answer, which ends the episode."
        )
        return responses_pb2.FunctionTool(
            name=name, description=what, parameters_json=dumps(schema)
        )

    async def _close_lost(
        self, opening: asyncio.Future[resource_pb2.CreateSessionResponse]
    ) -> None:
        with contextlib.suppress(MeshError):
            opened = await opening
            request = resource_pb2.CloseSessionRequest(session_id=opened.session_id)
            await self._resource.CloseSession(request, _context("CloseSession"))

    async def _listed(self) -> AsyncIterator[responses_pb2.Tool]:
        token = ""
        while True:
            request = resource_pb2.ListToolsRequest(page_token=token)
            reply = await self._resource.ListTools(request, _context("ListTools"))
            for tool in reply.tools:
                if tool.function.name:
                    yield tool
            token = reply.next_page_token
            if not token:
                return


def _context(method: str) -> CallContext:
    return CallContext(f"{_RESOURCE}/{method}")
