"""The environment, as one attempt sees it: a session at one instance, from open to close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import grpc

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.failures import Stage, StepFailed
from gymmesh_agent.peers import RESOURCE_SERVICE, VERIFY_SERVICE, ResourcePeer, VerifyPeer
from gymmesh_responses import text_to_bytes
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

PICK_S = 5.0
_CLOSE_S = 5.0
_RETRY_PAUSE_S = 0.2

_log = logging.getLogger("gymmesh.agent")


class Environments:
    """What GetEnvironment said, by instance: constant while a server runs, so asked once."""

    def __init__(self) -> None:
        self._known: dict[str, resource_pb2.GetEnvironmentResponse] = {}

    def known(self, instance_id: str) -> resource_pb2.GetEnvironmentResponse | None:
        """What the instance is, when it was asked before."""
        return self._known.get(instance_id)

    async def ask(
        self, instance_id: str, peer: ResourcePeer, timeout: float
    ) -> resource_pb2.GetEnvironmentResponse:
        """What the instance is, by its own word. Raises what the call raises."""
        answer = await peer.GetEnvironment(resource_pb2.GetEnvironmentRequest(), timeout=timeout)
        self._known[instance_id] = answer
        return answer


# What a session is before it is open; never changed.
_NO_INSTANCE = discovery_pb2.Instance()
_NO_ENVIRONMENT = resource_pb2.GetEnvironmentResponse()
_NO_SESSION = resource_pb2.CreateSessionResponse()


class EnvironmentSession:
    """One attempt's session. Every method but `close` raises StepFailed.

    Args:
        task: the task, passed on as it is.
        rollout_id: the rollout.
        attempt: the attempt; with the rollout it makes the request_id of CreateSession.
        call_s: seconds that one call (session, tool, turn) may take.
        verify_s: seconds that a verdict may take.
    """

    __slots__ = (
        "_asked",
        "_attempt",
        "_call_s",
        "_clock",
        "_directory",
        "_environments",
        "_lost",
        "_peer",
        "_rollout_id",
        "_task",
        "_verify_s",
        "environment",
        "instance",
        "name",
        "opened",
        "session_id",
    )

    def __init__(
        self,
        *,
        task: rollout_pb2.Task,
        rollout_id: str,
        attempt: int,
        directory: PeerDirectory,
        environments: Environments,
        clock: RolloutClock,
        call_s: float,
        verify_s: float,
    ) -> None:
        #: The environment's name.
        self.name = task.environment
        self._task = task
        self._rollout_id = rollout_id
        self._attempt = attempt
        self._directory = directory
        self._environments = environments
        self._clock = clock
        self._call_s = call_s
        self._verify_s = verify_s
        self._peer: ResourcePeer | None = None
        self._asked = False
        self._lost = False
        #: The instance that holds the session; empty until it is chosen.
        self.instance = _NO_INSTANCE
        #: What the environment is; empty until it is known.
        self.environment = _NO_ENVIRONMENT
        #: The open session, and its id; empty until it is.
        self.opened = _NO_SESSION
        self.session_id = ""

    @property
    def retry_safe(self) -> bool:
        """Whether the environment allows another attempt; True while nothing was done there."""
        return not self._asked or self.environment.retry_safe

    async def open(self) -> None:
        """Choose the instance and open the session there."""
        directory, clock = self._directory, self._clock
        try:
            instance = directory.choose(RESOURCE_SERVICE, self.name, affinity=self._rollout_id)
            if instance is None:
                instance = await directory.pick(
                    RESOURCE_SERVICE,
                    self.name,
                    affinity=self._rollout_id,
                    timeout=clock.hop(PICK_S),
                )
            self.instance = instance
            instance_id = instance.id
            peer: ResourcePeer = directory.peer(instance)
            self._peer = peer
            environment = self._environments.known(instance_id)
            if environment is None:
                timeout = clock.hop(self._call_s)
                environment = await self._environments.ask(instance_id, peer, timeout)
            self.environment = environment
            opened = await self._create(peer)
            session_id = opened.session_id
            if not session_id:
                raise _violated("session_id", "the environment opened a session without an id")
            self.session_id = session_id
            self.opened = opened
            if opened.environment_version not in ("", environment.version):
                # Another server answers under this id.
                timeout = clock.hop(self._call_s)
                self.environment = await self._environments.ask(instance_id, peer, timeout)
        except MeshError as error:
            raise StepFailed(error, Stage.CREATE_SESSION, self.name) from error

    async def call_tool(
        self, name: str, arguments: bytes, call_id: str, request_id: str
    ) -> resource_pb2.CallToolResponse:
        """Call a tool."""
        request = resource_pb2.CallToolRequest()
        request.session_id = self.session_id
        request.name = name
        request.arguments = arguments
        request.call_id = call_id
        request.request_id = request_id
        try:
            reply = await self._resource().CallTool(request, timeout=self._clock.hop(self._call_s))
            if reply.outcome == rollout_pb2.TOOL_OUTCOME_UNSPECIFIED:
                raise _violated("outcome", f"the answer of tool '{name}' has no outcome")
            return reply
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_TOOL_NOT_FOUND:
                raise StepFailed(error, Stage.TOOL, name, call_id) from error
            # An environment that answers so instead of by outcome: it is the model's mistake.
            return resource_pb2.CallToolResponse(
                text=text_to_bytes(error.message), outcome=rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
            )

    async def next_turn(
        self, request: resource_pb2.NextTurnRequest
    ) -> resource_pb2.NextTurnResponse:
        """Give the environment its turn; `session_id` is filled in."""
        request.session_id = self.session_id
        try:
            reply = await self._resource().NextTurn(request, timeout=self._clock.hop(self._call_s))
            if not reply.items and not reply.done:
                raise _violated("items", "the environment's turn is empty, but it is not done")
            if reply.reward - reply.reward != 0:  # NaN and the infinities alone
                raise _violated("reward", f"the reward of the turn is {reply.reward}")
            return reply
        except MeshError as error:
            raise StepFailed(error, Stage.TURN, self.name) from error

    async def verify(
        self,
        transcript: Sequence[responses_pb2.Item],
        stop_reason: rollout_pb2.StopReason.ValueType,
        turn_rewards: Sequence[float],
    ) -> rollout_pb2.Verification:
        """Have the attempt judged, where its session is."""
        request = verify_pb2.VerifyRequest()
        request.session_id = self.session_id
        request.task.CopyFrom(self._task)
        request.transcript.extend(transcript)
        request.stop_reason = stop_reason
        request.rollout_id = self._rollout_id
        request.attempt = self._attempt
        if turn_rewards:
            request.turn_rewards.extend(turn_rewards)
        try:
            peer: VerifyPeer = self._directory.peer(self.instance, VERIFY_SERVICE)
            reply = await peer.Verify(request, timeout=self._clock.hop(self._verify_s))
            return reply.verification
        except MeshError as error:
            raise StepFailed(error, Stage.VERIFY, self.name) from error

    async def close(self) -> None:
        """Close the session, also one whose opening was cut off. Bounded; never raises."""
        if self._peer is None:
            return
        try:
            session_id = self.session_id or await self._find_lost(self._peer)
            if session_id:
                request = resource_pb2.CloseSessionRequest(session_id=session_id)
                await self._peer.CloseSession(request, timeout=_CLOSE_S)
        except MeshError as error:
            # The environment sweeps it when it has been idle for long enough.
            _log.warning("a session of %s not closed: %s", self.name, error)

    async def _find_lost(self, peer: ResourcePeer) -> str:
        """The id of a session that was asked for, and whose answer nobody waited for.

        Asking again under the same request_id gives that very session, or one to be closed.
        """
        if not self._lost:
            return ""
        reply = await peer.CreateSession(self._creation(), timeout=min(self._call_s, _CLOSE_S))
        return reply.session_id

    async def _create(self, peer: ResourcePeer) -> resource_pb2.CreateSessionResponse:
        request = self._creation()
        self._asked = True
        try:
            try:
                return await peer.CreateSession(request, timeout=self._clock.hop(self._call_s))
            except MeshError as error:
                if error.code is not grpc.StatusCode.UNAVAILABLE:
                    raise
            # Once more, at the same instance and with the same request_id: no session leaks.
            await asyncio.sleep(min(_RETRY_PAUSE_S, self._clock.remaining()))
            return await peer.CreateSession(request, timeout=self._clock.hop(self._call_s))
        except asyncio.CancelledError:
            self._lost = True
            raise

    def _creation(self) -> resource_pb2.CreateSessionRequest:
        task = self._task
        request = resource_pb2.CreateSessionRequest()
        request.request_id = f"{self._rollout_id}/{self._attempt}"
        request.rollout_id = self._rollout_id
        request.attempt = self._attempt
        request.task.CopyFrom(task)
        if task.HasField("seed"):
            request.seed = task.seed
        return request

    def _resource(self) -> ResourcePeer:
        if self._peer is None:
            raise RuntimeError("the session is not open")
        return self._peer


def _violated(rule: str, message: str) -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, message, metadata={"rule": rule})
