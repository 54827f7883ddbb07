"""Calls an environment: one attempt's session at one instance, from open to close."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Protocol

import grpc

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.environment.verification import check_group, rollout_verdict, violated
from gymmesh_agent.failures import FailureStage, StepFailed
from gymmesh_agent.plan import AttemptId, RolloutClock, add_items
from gymmesh_responses import text_to_bytes
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

RESOURCE_SERVICE = "gymmesh.resource.v1.ResourceService"
VERIFY_SERVICE = "gymmesh.verify.v1.VerifyService"
# Seconds to wait for an instance to appear.
PICK_S = 5.0
_CLOSE_S = 5.0
_RETRY_PAUSE_S = 0.2
# Seconds that a call may wait for places of sandboxes and their start.
_SANDBOX_WAIT_S = 600.0
# What is known of an environment before it is asked, and of a session before it is open.
_NOT_ASKED = resource_pb2.GetEnvironmentResponse()
_NOT_OPEN = resource_pb2.CreateSessionResponse()
# So often a session is asked for: twice at one instance, and at two others that are there.
_MOST_TRIES = 4

_log = logging.getLogger("gymmesh.agent")


class ResourcePeer(Protocol):
    """The RPCs of an environment that an agent calls; each raises MeshError."""

    async def GetEnvironment(
        self, request: resource_pb2.GetEnvironmentRequest, *, timeout: float
    ) -> resource_pb2.GetEnvironmentResponse:
        """What it is."""

    async def CreateSession(
        self, request: resource_pb2.CreateSessionRequest, *, timeout: float
    ) -> resource_pb2.CreateSessionResponse:
        """Opens a session."""

    async def CallTool(
        self, request: resource_pb2.CallToolRequest, *, timeout: float
    ) -> resource_pb2.CallToolResponse:
        """Calls a tool."""

    async def NextTurn(
        self, request: resource_pb2.NextTurnRequest, *, timeout: float
    ) -> resource_pb2.NextTurnResponse:
        """The environment's turn."""

    async def PlayEpisode(
        self, request: resource_pb2.PlayEpisodeRequest, *, timeout: float
    ) -> resource_pb2.PlayEpisodeResponse:
        """Plays the session's episode itself."""

    async def CloseSession(
        self, request: resource_pb2.CloseSessionRequest, *, timeout: float
    ) -> resource_pb2.CloseSessionResponse:
        """Closes a session."""


class VerifyPeer(Protocol):
    """The RPCs of a verifier; each raises MeshError."""

    async def Verify(
        self, request: verify_pb2.VerifyRequest, *, timeout: float
    ) -> verify_pb2.VerifyResponse:
        """Judges one attempt."""

    async def VerifyGroup(
        self, request: verify_pb2.VerifyGroupRequest, *, timeout: float
    ) -> verify_pb2.VerifyGroupResponse:
        """Judges the repeats of a task together."""


class Environments:
    """The environments that all attempts of one agent call.

    Args:
        call_s: seconds that one call (session, tool, turn) may take.
        verify_s: seconds after which the agent gives up on an environment that returns no verdict.
        agent, agent_instance_id: the agent's name and instance in the mesh.
        wants_choices: whether the agent asks sessions for the task's choices.
    """

    def __init__(
        self,
        directory: PeerDirectory,
        call_s: float,
        verify_s: float,
        agent: str,
        agent_instance_id: str,
        wants_choices: bool = False,
    ) -> None:
        self.directory = directory
        self.call_s = call_s
        self.verify_s = verify_s
        self.agent = agent
        self.agent_instance_id = agent_instance_id
        self.wants_choices = wants_choices
        # By instance: constant while a server runs, so asked once.
        self._descriptions: dict[str, resource_pb2.GetEnvironmentResponse] = {}

    def verifier(self, instance: discovery_pb2.Instance) -> VerifyPeer:
        """The verifier at an instance. Raises MeshError if there is none."""
        peer: VerifyPeer = self.directory.peer(instance, VERIFY_SERVICE)
        return peer

    async def describe(
        self, instance: discovery_pb2.Instance, timeout: float, *, again: bool = False
    ) -> resource_pb2.GetEnvironmentResponse:
        """The environment's description of itself; with `again`, it is requested again. Raises
        MeshError.
        """
        known = self._descriptions.get(instance.id)
        if known is None or again:
            peer: ResourcePeer = self.directory.peer(instance)
            request = resource_pb2.GetEnvironmentRequest()
            known = await peer.GetEnvironment(request, timeout=timeout)
            self._descriptions[instance.id] = known
        return known

    async def judge_group(
        self, group: verify_pb2.VerifyGroupRequest, context: CallContext
    ) -> verify_pb2.VerifyGroupResponse:
        """Let the task's environment judge the repeats of a task together.

        Raises:
            MeshError: what the environment raises; CONTRACT_VIOLATED if its verdicts do not fit the
                members.
        """
        instance = await self.directory.pick(
            RESOURCE_SERVICE, group.task.environment, timeout=context.timeout(PICK_S)
        )
        verifier = self.verifier(instance)
        try:
            reply = await verifier.VerifyGroup(group, timeout=context.timeout(self.verify_s))
        except MeshError as error:
            other = await self.directory.instead(instance, error, timeout=context.timeout(PICK_S))
            if other is None:
                raise
            verifier = self.verifier(other)
            reply = await verifier.VerifyGroup(group, timeout=context.timeout(self.verify_s))
        check_group(group.members, reply.verdicts)
        return reply


class SessionClient:
    """One attempt's session. Every step except `close` raises StepFailed.

    Args:
        attempt: its name is the request_id of CreateSession.
        task: passed on unchanged.

    Attributes:
        name: the environment's name.
        environment: the environment's description of itself; empty until it is requested.
        version: the environment's version; empty until it is known.
        session_id: empty until the session is open.
        opened: the answer to CreateSession: seed, tools, first items; empty until the session is
            open.
    """

    def __init__(
        self,
        environments: Environments,
        name: str,
        attempt: AttemptId,
        task: rollout_pb2.Task,
        clock: RolloutClock,
    ) -> None:
        self.name = name
        self.environment = _NOT_ASKED
        self.version = ""
        self.session_id = ""
        self.opened = _NOT_OPEN
        self._environments = environments
        self._attempt = attempt
        self._task = task
        self._clock = clock
        self._instance: discovery_pb2.Instance | None = None
        self._peer: ResourcePeer  # at the instance
        self._asked = False  # whether CreateSession was sent
        self._lost = False  # whether its answer was not waited for

    @property
    def instance_id(self) -> str:
        """The instance that holds the session; empty until it is chosen."""
        return "" if self._instance is None else self._instance.id

    @property
    def address(self) -> str:
        """The registered address of that instance."""
        return "" if self._instance is None else self._instance.address

    @property
    def retry_safe(self) -> bool:
        """Whether the environment permits another attempt; True while the attempt has done
        nothing there.
        """
        return not self._asked or self.environment.retry_safe

    async def open(self) -> None:
        """Choose the instance and open the session there."""
        try:
            opened = await self._open_somewhere()
            if not opened.session_id:
                raise violated("session_id", "the environment opened a session without an id")
            self.opened, self.session_id = opened, opened.session_id
            version = opened.environment_version
            if version and version != self.version:
                # Another server answers under this id.
                self.version = version
                self.environment = await self._environments.describe(
                    self._held(), self._hop(), again=True
                )
        except MeshError as error:
            raise StepFailed(error, FailureStage.CREATE_SESSION, self.name) from error
        except asyncio.CancelledError:
            self._lost = self._asked and not self.session_id
            raise

    async def call_tool(
        self, name: str, arguments: bytes, call_id: str, request_id: str
    ) -> resource_pb2.CallToolResponse:
        """Call a tool. If the environment has no such tool, the model gets an answer that says
        so.
        """
        request = resource_pb2.CallToolRequest(
            session_id=self.session_id,
            name=name,
            arguments=arguments,
            call_id=call_id,
            request_id=request_id,
        )
        try:
            reply = await self._peer.CallTool(request, timeout=self._hop())
            if reply.outcome == rollout_pb2.TOOL_OUTCOME_UNSPECIFIED:
                raise violated("outcome", f"the answer of tool '{name}' has no outcome")
            if not math.isfinite(reply.reward):
                raise violated(
                    "reward", f"the reward of tool '{name}' is {reply.reward}, not a finite number"
                )
            return reply
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_TOOL_NOT_FOUND:
                raise StepFailed(error, FailureStage.TOOL, name, call_id) from error
            return resource_pb2.CallToolResponse(
                text=text_to_bytes(error.message), outcome=rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
            )

    async def next_turn(
        self, new_items: Sequence[responses_pb2.Item], request_id: str
    ) -> resource_pb2.NextTurnResponse:
        """Let the environment take its turn after these items."""
        request = resource_pb2.NextTurnRequest(
            session_id=self.session_id, new_items=new_items, request_id=request_id
        )
        try:
            reply = await self._peer.NextTurn(request, timeout=self._hop())
            if not reply.items and not reply.done:
                raise violated(
                    "items", "the environment's turn has no items, but the episode is not done"
                )
            if not math.isfinite(reply.reward):
                raise violated(
                    "reward", f"the reward of the turn is {reply.reward}, not a finite number"
                )
            return reply
        except MeshError as error:
            raise StepFailed(error, FailureStage.TURN, self.name) from error

    async def play(
        self, endpoint: resource_pb2.ModelEndpoint, timeout: float
    ) -> resource_pb2.PlayEpisodeResponse:
        """Let the environment play the episode itself. Returns when the episode is over."""
        request = resource_pb2.PlayEpisodeRequest(session_id=self.session_id, endpoint=endpoint)
        try:
            return await self._peer.PlayEpisode(request, timeout=self._clock.hop(timeout))
        except MeshError as error:
            raise StepFailed(error, FailureStage.PLAY, self.name) from error

    async def verify(
        self,
        transcript: Sequence[responses_pb2.Item],
        stop_reason: rollout_pb2.StopReason.ValueType,
        turn_rewards: Sequence[float],
    ) -> tuple[rollout_pb2.Verified, verify_pb2.VerifyResponse]:
        """The rollout's verdict and the instance's answer that it comes from. The verdict
        includes the turns' rewards, and the session's final state if the environment keeps it.
        """
        attempt, component = self._attempt, self.name
        request = verify_pb2.VerifyRequest(
            session_id=self.session_id,
            stop_reason=stop_reason,
            rollout_id=attempt.rollout_id,
            attempt=attempt.attempt,
            turn_rewards=turn_rewards,
        )
        request.task.CopyFrom(self._task)
        add_items(request.transcript, transcript)
        try:
            timeout = self._clock.hop(self._environments.verify_s)
            reply = await self._environments.verifier(self._held()).Verify(request, timeout=timeout)
            verdict = reply.verification
            component = verdict.verifier or self.name
            verified = rollout_pb2.Verified()
            verified.verification.CopyFrom(rollout_verdict(verdict, self.environment, turn_rewards))
            if reply.HasField("final_state"):
                verified.final_state.CopyFrom(reply.final_state)
            return verified, reply
        except MeshError as error:
            raise StepFailed(error, FailureStage.VERIFY, component) from error

    async def close(self) -> None:
        """Close the session, even if its opening was interrupted. Takes bounded time and raises
        no MeshError.
        """
        if self._instance is None:
            return
        try:
            session_id = self.session_id or await self._find_lost()
            if session_id:
                request = resource_pb2.CloseSessionRequest(session_id=session_id)
                await self._peer.CloseSession(request, timeout=_CLOSE_S)
        except MeshError as error:
            # The environment sweeps it when it has been idle for long enough.
            _log.warning("a session of environment '%s' could not be closed: %s", self.name, error)

    async def _open_somewhere(self) -> resource_pb2.CreateSessionResponse:
        """Request the session; if an instance is unreachable, at another instance or once more
        at the same.
        """
        instance = await self._environments.directory.pick(
            RESOURCE_SERVICE,
            self.name,
            affinity=self._attempt.rollout_id,
            timeout=PICK_S,
        )
        tried: list[str] = []
        while True:
            try:
                self._peer = self._environments.directory.peer(instance)
                self._instance = instance
                self.environment = await self._environments.describe(instance, self._hop())
                self.version = self.environment.version
                self._asked = True
                return await self._peer.CreateSession(self._creation(), timeout=self._hop())
            except MeshError as error:
                tried.append(instance.id)
                if error.code is not grpc.StatusCode.UNAVAILABLE or len(tried) == _MOST_TRIES:
                    raise
                instance = await self._next_instance(instance, error, tried)

    async def _next_instance(
        self, instance: discovery_pb2.Instance, error: MeshError, tried: Sequence[str]
    ) -> discovery_pb2.Instance:
        """The instance to ask after one was unreachable.

        If that instance shuts down or cannot be reached, another instance. If there is no other,
        the same once more, with the same request_id, so that no session leaks. Raises the error if
        that was already tried.
        """
        other = await self._environments.directory.instead(
            instance,
            error,
            affinity=self._attempt.rollout_id,
            timeout=min(PICK_S, self._clock.remaining()),
        )
        if other is not None:
            return other
        if tried.count(instance.id) > 1:
            raise error
        await asyncio.sleep(min(_RETRY_PAUSE_S, self._clock.remaining()))
        return instance

    async def _find_lost(self) -> str:
        """The id of a session that was requested, but whose answer nobody waited for.

        A request with the same request_id returns this session, or a session that must be closed.
        """
        if not self._lost:
            return ""
        timeout = min(self._environments.call_s, _CLOSE_S)
        reply = await self._peer.CreateSession(self._creation(), timeout=timeout)
        return reply.session_id

    def _creation(self) -> resource_pb2.CreateSessionRequest:
        attempt = self._attempt
        request = resource_pb2.CreateSessionRequest(
            request_id=attempt.name,
            rollout_id=attempt.rollout_id,
            attempt=attempt.attempt,
            seed=attempt.seed,
            agent=self._environments.agent,
            agent_instance_id=self._environments.agent_instance_id,
            wants_choices=self._environments.wants_choices,
        )
        request.task.CopyFrom(self._task)
        return request

    def _held(self) -> discovery_pb2.Instance:
        """The instance that has the session."""
        assert self._instance is not None  # a step before `open` is an error of the caller
        return self._instance

    def _hop(self) -> float:
        call_s = self._environments.call_s
        if self.environment.sandboxes:
            # The environment bounds its own work, without what that waits for a sandbox.
            call_s += _SANDBOX_WAIT_S
        return self._clock.hop(call_s)
