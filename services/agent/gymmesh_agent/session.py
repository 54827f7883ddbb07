"""The environment, as one attempt sees it: a session at one instance, from open to close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

import grpc
import msgspec

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_agent.attempt_id import AttemptId
from gymmesh_agent.clock import RolloutClock
from gymmesh_agent.failures import Stage, StepFailed
from gymmesh_agent.params import add_items
from gymmesh_agent.peers import RESOURCE_SERVICE, VERIFY_SERVICE, ResourcePeer, VerifyPeer
from gymmesh_agent.terms import tools_key
from gymmesh_responses import text_to_bytes
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

PICK_S = 5.0
_CLOSE_S = 5.0
_RETRY_PAUSE_S = 0.2
# So often a session is asked for: twice at one instance, and at two others that are there.
_MOST_TRIES = 4

_log = logging.getLogger("gymmesh.agent")

# The method of the class: a message looks through the names of its fields to find its own.
_copy_task = rollout_pb2.Task.CopyFrom


# What a session is before it is open; never changed.
_NO_ENVIRONMENT = resource_pb2.GetEnvironmentResponse()


class Offer(msgspec.Struct, eq=False):
    """What an environment says of a session, beside its id and its seed.

    Attributes:
        version: the environment's, where it says so.
        multi_turn: whether it takes turns.
        items: what it opens with.
        tools: the session's tools.
        tools_key: their bytes; see `terms.tools_key`.
    """

    version: str = ""
    multi_turn: bool = False
    items: tuple[responses_pb2.Item, ...] = ()
    tools: Sequence[responses_pb2.Tool] = ()
    tools_key: tuple[bytes, ...] = ()


_NO_OFFER = Offer()


class Site:
    """One instance of an environment: how it is called, and what it says it is."""

    __slots__ = (
        "_answer",
        "_directory",
        "_offer",
        "_verifier",
        "environment",
        "instance",
        "instance_id",
        "peer",
        "version",
    )

    def __init__(
        self,
        directory: PeerDirectory,
        instance: discovery_pb2.Instance,
        environment: resource_pb2.GetEnvironmentResponse | None,
    ) -> None:
        self._directory = directory
        self._verifier: VerifyPeer | None = None
        # The last session's, and the answer that it was read from; None: the next will differ.
        self._offer = _NO_OFFER
        self._answer: resource_pb2.CreateSessionResponse | None = None
        self.instance = instance
        self.instance_id = instance.id
        self.peer: ResourcePeer = directory.peer(instance)
        #: What GetEnvironment said: constant while a server runs, so asked once; None: not yet.
        self.environment = environment
        #: The environment's version, as it said.
        self.version = "" if environment is None else environment.version

    async def ask(self, timeout: float) -> resource_pb2.GetEnvironmentResponse:
        """What the environment is, by its own word. Raises what the call raises."""
        request = resource_pb2.GetEnvironmentRequest()
        environment = await self.peer.GetEnvironment(request, timeout=timeout)
        self.environment, self.version = environment, environment.version
        return environment

    def offer(
        self, opened: resource_pb2.CreateSessionResponse, session_id: str, seed: int
    ) -> Offer:
        """What it says of a session, which has this id and seed."""
        # Mostly the same as the last time: to see that takes a fraction of reading all tools.
        answer, last = self._answer, self._offer
        if answer is not None:
            answer.session_id = session_id
            answer.seed = seed
            if answer == opened:
                return last
        tools, items = opened.tools, tuple(opened.items)
        key = tools_key(tools)
        offer = Offer(opened.environment_version, opened.multi_turn, items, tools, key)
        self._offer, self._answer = offer, None
        if key == last.tools_key and items == last.items:
            self._answer = resource_pb2.CreateSessionResponse()
            self._answer.CopyFrom(opened)
        return offer

    def verifier(self) -> VerifyPeer:
        """Who judges what is done here. Raises MeshError when nobody does."""
        if self._verifier is None:
            self._verifier = self._directory.peer(self.instance, VERIFY_SERVICE)
        return self._verifier


class Environments:
    """The environments, as all attempts of one agent call them.

    Args:
        call_s: seconds that one call (session, tool, turn) may take.
        verify_s: seconds that a verdict may take.
    """

    def __init__(self, directory: PeerDirectory, call_s: float, verify_s: float) -> None:
        self.directory = directory
        self.call_s = call_s
        self.verify_s = verify_s
        self._sites: dict[str, Site] = {}
        # Those that are the only ones of their name, as of a state of the directory.
        self._only: dict[str, Site] = {}
        self._as_of = directory.changes

    def site(self, instance: discovery_pb2.Instance) -> Site:
        """What is known of an instance."""
        site = self._sites.get(instance.id)
        if site is None or site.instance is not instance:
            # Where its address changed, what it is has not.
            environment = None if site is None else site.environment
            site = self._sites[instance.id] = Site(self.directory, instance, environment)
        return site

    def choose(self, name: str, affinity: str) -> Site | None:
        """One to open a session at now, of this name; None: there is none, or none yet."""
        directory = self.directory
        if directory.changes != self._as_of:
            self._only, self._as_of = {}, directory.changes
        only = self._only.get(name)
        if only is not None:
            return only
        instance = directory.choose(RESOURCE_SERVICE, name, affinity=affinity)
        if instance is None:
            return None
        site = self.site(instance)
        if len(directory.serving(RESOURCE_SERVICE, name)) == 1:
            self._only[name] = site
        return site


class EnvironmentSession:
    """One attempt's session. `open` and `next_turn` raise StepFailed.

    Args:
        name: the environment's.
        who: the attempt; its name is the request_id of CreateSession.
        task: the task, passed on as it is.
    """

    __slots__ = (
        "_asked",
        "_clock",
        "_environments",
        "_lost",
        "_site",
        "_task",
        "_who",
        "environment",
        "instance_id",
        "name",
        "offer",
        "seed",
        "session_id",
        "version",
    )

    def __init__(
        self,
        environments: Environments,
        name: str,
        who: AttemptId,
        task: rollout_pb2.Task,
        clock: RolloutClock,
    ) -> None:
        #: The environment's name.
        self.name = name
        self._environments = environments
        self._who = who
        self._task = task
        self._clock = clock
        self._site: Site | None = None
        self._asked = False
        self._lost = False
        #: The instance that holds the session; empty until it is chosen.
        self.instance_id = ""
        #: What the environment is, and its version; empty until it is known.
        self.environment = _NO_ENVIRONMENT
        self.version = ""
        #: What the environment said of the open session; empty until it is.
        self.offer = _NO_OFFER
        #: Its id, empty until it is open, and the seed in force.
        self.session_id = ""
        self.seed = 0

    @property
    def retry_safe(self) -> bool:
        """Whether the environment allows another attempt; True while nothing was done there."""
        return not self._asked or self.environment.retry_safe

    async def open(self) -> None:
        """Choose the instance and open the session there."""
        environments, clock = self._environments, self._clock
        tried: list[Site] = []
        try:
            site = environments.choose(self.name, self._who.rollout_id) or await self._pick()
            while True:
                try:
                    opened = await self._open_at(site)
                    break
                except MeshError as error:
                    tried.append(site)
                    if error.code is not grpc.StatusCode.UNAVAILABLE or len(tried) == _MOST_TRIES:
                        raise
                    site = await self._next_site(error, tried)
            session_id = opened.session_id
            if not session_id:
                raise violated("session_id", "the environment opened a session without an id")
            self.session_id = session_id
            seed = self.seed = opened.seed
            offer = self.offer = site.offer(opened, session_id, seed)
            told = offer.version
            if told and told != self.version:
                # Another server answers under this id.
                self.version = told
                self.environment = await site.ask(clock.hop(environments.call_s))
        except MeshError as error:
            raise StepFailed(error, Stage.CREATE_SESSION, self.name) from error
        except asyncio.CancelledError:
            self._lost = self._asked and not self.session_id
            raise

    def call_tool(
        self, name: str, arguments: bytes, call_id: str, request_id: str
    ) -> Awaitable[resource_pb2.CallToolResponse]:
        """Call a tool. Raises MeshError, which is for `tool_failed`."""
        # No coroutine of its own: thousands of calls may wait here.
        request = resource_pb2.CallToolRequest()
        request.session_id = self.session_id
        request.name = name
        request.arguments = arguments
        request.call_id = call_id
        request.request_id = request_id
        site = self._site
        assert site is not None  # it was opened
        return site.peer.CallTool(request, timeout=self._clock.hop(self._environments.call_s))

    def tool_failed(
        self, error: MeshError, name: str, call_id: str
    ) -> resource_pb2.CallToolResponse:
        """What is answered where the call of a tool raised; StepFailed, where nothing is."""
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
        site = self._site
        assert site is not None  # it was opened
        try:
            timeout = self._clock.hop(self._environments.call_s)
            reply = await site.peer.NextTurn(request, timeout=timeout)
            if not reply.items and not reply.done:
                raise violated("items", "the environment's turn is empty, but it is not done")
            if reply.reward - reply.reward != 0:  # NaN and the infinities alone
                raise violated("reward", f"the reward of the turn is {reply.reward}")
            return reply
        except MeshError as error:
            raise StepFailed(error, Stage.TURN, self.name) from error

    def verify(
        self,
        transcript: Sequence[responses_pb2.Item],
        stop_reason: rollout_pb2.StopReason.ValueType,
        turn_rewards: Sequence[float],
    ) -> Awaitable[verify_pb2.VerifyResponse]:
        """Have the attempt judged, where its session is. Raises MeshError."""
        who, site = self._who, self._site
        assert site is not None  # it was opened
        request = verify_pb2.VerifyRequest()
        request.session_id = self.session_id
        _copy_task(request.task, self._task)
        add_items(request.transcript, transcript)
        request.stop_reason = stop_reason
        request.rollout_id = who.rollout_id
        request.attempt = who.attempt
        if turn_rewards:
            request.turn_rewards.extend(turn_rewards)
        return site.verifier().Verify(request, timeout=self._clock.hop(self._environments.verify_s))

    async def close(self) -> None:
        """Close the session, also one whose opening was cut off. Bounded; never raises."""
        if self._site is None:
            return
        peer = self._site.peer
        try:
            session_id = self.session_id or await self._find_lost(peer)
            if session_id:
                request = resource_pb2.CloseSessionRequest()
                request.session_id = session_id
                await peer.CloseSession(request, timeout=_CLOSE_S)
        except MeshError as error:
            # The environment sweeps it when it has been idle for long enough.
            _log.warning("a session of %s not closed: %s", self.name, error)

    async def _find_lost(self, peer: ResourcePeer) -> str:
        """The id of a session that was asked for, and whose answer nobody waited for.

        Asking again under the same request_id gives that very session, or one to be closed.
        """
        if not self._lost:
            return ""
        timeout = min(self._environments.call_s, _CLOSE_S)
        reply = await peer.CreateSession(self._creation(), timeout=timeout)
        return reply.session_id

    async def _pick(self) -> Site:
        """An instance, waited for."""
        environments, timeout = self._environments, self._clock.hop(PICK_S)
        instance = await environments.directory.pick(
            RESOURCE_SERVICE, self.name, affinity=self._who.rollout_id, timeout=timeout
        )
        return environments.site(instance)

    async def _open_at(self, site: Site) -> resource_pb2.CreateSessionResponse:
        """Ask an instance for the session. Raises MeshError."""
        clock, call_s = self._clock, self._environments.call_s
        self._site = site
        self.instance_id = site.instance_id
        environment = site.environment
        if environment is None:
            environment = await site.ask(clock.hop(call_s))
        self.environment = environment
        self.version = site.version
        self._asked = True
        return await site.peer.CreateSession(self._creation(), timeout=clock.hop(call_s))

    async def _next_site(self, error: MeshError, tried: Sequence[Site]) -> Site:
        """Where to ask after an instance was away: elsewhere when it goes down or can't be reached,
        else there once more, with the same request_id, so that no session leaks.

        Raises the error where that was tried, too.
        """
        environments, site = self._environments, tried[-1]
        affinity = self._who.rollout_id
        other = environments.directory.instead(site.instance, error, affinity=affinity)
        if other is not None:
            return environments.site(other)
        if tried.count(site) > 1:
            raise error
        await asyncio.sleep(min(_RETRY_PAUSE_S, self._clock.remaining()))
        return site

    def _creation(self) -> resource_pb2.CreateSessionRequest:
        who = self._who
        request = resource_pb2.CreateSessionRequest()
        request.request_id = who.name
        request.rollout_id = who.rollout_id
        request.attempt = who.attempt
        _copy_task(request.task, self._task)
        if who.seed is not None:
            request.seed = who.seed
        return request


def violated(rule: str, message: str) -> MeshError:
    """CONTRACT_VIOLATED."""
    return MeshError(errors_pb2.ERROR_REASON_CONTRACT_VIOLATED, message, metadata={"rule": rule})
