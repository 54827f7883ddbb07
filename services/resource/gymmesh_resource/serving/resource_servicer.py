"""ResourceService: what the environment is, its sessions, tools and turns.

What acts on a session runs on after its caller's deadline, for a repeat to find: the limits of the
environment bound it and the model calls made for it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_resource.environment import Said, Turn
from gymmesh_resource.errors import WrongResult
from gymmesh_resource.model_access import UsageCounter, merged
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_resource.rollout import Transcript
from gymmesh_resource.serving.episode import check_reached, without_key
from gymmesh_resource.serving.faults import callers_fault, environment_fault, raise_from
from gymmesh_resource.serving.served_environment import ServedEnvironment, seed_of
from gymmesh_resource.serving.sessions import OpenSession
from gymmesh_resource.serving.tool_calls import ToolCalls
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.tools import Image
from gymmesh_resource.verdicts import turn_reward
from gymmesh_responses import item_from_json, new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.telemetry import for_rollout
from gymmesh_runtime.text import secret_masked
from gymmesh_sandbox_access import RolloutAgent

T = TypeVar("T")
# 128 bits, so that an id cannot be guessed.
_ID_BYTES = 16
_SAID = (str, Image, responses_pb2.Item)
_SAY = "set 'say' to text, an image, an item or a list of these"
_PAGE = 100
_LARGEST_PAGE = 1000
# For an episode whose caller set no deadline.
_LONGEST_EPISODE_S: Final = 86_400.0


class ResourceServicer:
    """The environment's RPCs, named as in the contract, which says what each does."""

    def __init__(self, served: ServedEnvironment) -> None:
        self._served = served
        self._sessions = served.sessions
        self._tools = ToolCalls(served)
        self._has_session_tools = served.defines("session_tools")
        self._has_opening = served.defines("opening")
        self._has_choices = served.defines("choices")
        environment, limit_s = served.environment, served.config.turn_timeout_s
        self._opening = served.method(environment.opening, limit_s)
        self._choices = served.method(environment.choices, limit_s)
        self._next_turn = served.method(environment.next_turn, limit_s)
        self._play_method = served.method(environment.play, _LONGEST_EPISODE_S)
        self._description = resource_pb2.GetEnvironmentResponse(
            name=served.name,
            version=environment.version,
            description=" ".join((type(environment).__doc__ or "").split()),
            multi_turn=served.multi_turn,
            verify_needs_session=served.verify_needs_session,
            retry_safe=environment.retry_safe,
            judges_groups=served.judges_groups,
            reward_rule=environment.reward_rule,
            models=served.models.names,
            sandboxes=served.sandboxes.names,
            session_idle_s=served.config.session_idle_s,
            session_limit=served.config.session_limit,
            instance_id=served.instance_id,
            contract_version=CONTRACT_VERSION,
            verifier=served.name,
            verifier_version=served.verifier_version(environment.compat),
            compat=environment.compat,
            references=environment.references,
            keeps_state=served.keeps_state,
            tools_replayable=environment.tools_replayable,
            offers_expected=served.config.audit and served.defines("expected"),
            win_reward=environment.win_reward,
            source_digest=served.source_digest,
            plays=served.plays,
        )
        #: What all answers to CreateSession have in common.
        self._session_answer = resource_pb2.CreateSessionResponse(
            instance_id=served.instance_id,
            tools=self._tools.offered,
            multi_turn=served.multi_turn,
            environment_version=environment.version,
            tools_in_order=served.in_order,
        )

    async def GetEnvironment(
        self, request: resource_pb2.GetEnvironmentRequest, context: CallContext
    ) -> resource_pb2.GetEnvironmentResponse:
        return self._description

    async def ListTasks(
        self, request: resource_pb2.ListTasksRequest, context: CallContext
    ) -> resource_pb2.ListTasksResponse:
        page, following = _page(self._served.examples, request.page_size, request.page_token)
        return resource_pb2.ListTasksResponse(tasks=page, next_page_token=following)

    async def ListTools(
        self, request: resource_pb2.ListToolsRequest, context: CallContext
    ) -> resource_pb2.ListToolsResponse:
        page, following = _page(self._tools.offered, request.page_size, request.page_token)
        return resource_pb2.ListToolsResponse(tools=page, next_page_token=following)

    async def CreateSession(
        self, request: resource_pb2.CreateSessionRequest, context: CallContext
    ) -> resource_pb2.CreateSessionResponse:
        opened = await self._sessions.create(request, context.identity, self._open)
        return opened.answer

    async def CallTool(
        self, request: resource_pb2.CallToolRequest, context: CallContext
    ) -> resource_pb2.CallToolResponse:
        with self._sessions.get(request.session_id, context.identity) as opened:
            return await opened.calls.run(request, self._tools.call, opened, request)

    async def NextTurn(
        self, request: resource_pb2.NextTurnRequest, context: CallContext
    ) -> resource_pb2.NextTurnResponse:
        if not self._served.multi_turn:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {self._served.name!r} does not take turns.",
                metadata={"method": "gymmesh.resource.v1.ResourceService/NextTurn"},
            )
        with self._sessions.get(request.session_id, context.identity) as opened:
            return await opened.calls.run(request, self._turn, opened, request)

    async def PlayEpisode(
        self, request: resource_pb2.PlayEpisodeRequest, context: CallContext
    ) -> resource_pb2.PlayEpisodeResponse:
        if not self._served.plays:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {self._served.name!r} does not play episodes itself.",
                metadata={"method": "gymmesh.resource.v1.ResourceService/PlayEpisode"},
            )
        with self._sessions.get(request.session_id, context.identity) as opened:
            play = partial(self._play, opened, request.endpoint, context.deadline)
            return await opened.episode.play(play)

    async def CloseSession(
        self, request: resource_pb2.CloseSessionRequest, context: CallContext
    ) -> resource_pb2.CloseSessionResponse:
        await self._sessions.close(request.session_id, context.identity)
        return resource_pb2.CloseSessionResponse()

    async def _open(
        self, request: resource_pb2.CreateSessionRequest, identity: str
    ) -> OpenSession[Any]:
        """Open a session for a request that is no repeat."""
        served = self._served
        task = Task(request.task)
        served.check(task)
        seed = request.seed if request.HasField("seed") else seed_of(request.task)
        with for_rollout(request.rollout_id):
            session_id = secrets.token_hex(_ID_BYTES)
            agent = RolloutAgent(request.agent, request.agent_instance_id)
            session = await served.new_session(
                session_id,
                task,
                seed,
                request.rollout_id,
                request.attempt,
                agent if agent.name else None,
            )
            tools: Sequence[responses_pb2.Tool] = ()
            items: Sequence[responses_pb2.Item] = ()
            choices: Sequence[str] = ()
            grants: Sequence[grant_pb2.SandboxGrant] = ()
            stage = "sandboxes"
            try:
                if served.sandboxes:
                    grants = await session.sandboxes.grants()
                stage = "session_tools"
                if self._has_session_tools:
                    tools = await self._tools.further(session)
                stage = "opening"
                if self._has_opening:
                    items = _items(await self._opening.call((session,)), self._opening.function)
                stage = "choices"
                if self._has_choices and request.wants_choices:
                    choices = _texts(await self._choices.call((task,)), self._choices.function)
            except BaseException as error:
                await served.end_session(session)
                if isinstance(error, Exception):
                    raise_from(environment_fault(error, served.name, stage), error)
                raise
        answer = resource_pb2.CreateSessionResponse()
        answer.CopyFrom(self._session_answer)
        answer.session_id = session.id
        answer.seed = session.seed
        answer.tools.extend(tools)
        answer.items.extend(items)
        answer.choices.extend(choices)
        answer.sandboxes.extend(grants)
        return self._sessions.add(session, request.request_id, identity, answer)

    async def _turn(
        self, opened: OpenSession[Any], request: resource_pb2.NextTurnRequest
    ) -> resource_pb2.NextTurnResponse:
        """Take a turn for a request that is no repeat."""
        session = opened.session
        async with opened.order:
            if session.done:
                raise MeshError(
                    errors_pb2.ERROR_REASON_SESSION_STATE,
                    "The episode is over: there are no further turns.",
                    metadata={"session_id": session.id, "state": "done"},
                )
            usage = UsageCounter()
            with for_rollout(session.rollout_id):
                try:
                    new = Transcript(request.new_items)
                    turn = await self._next_turn.call((session, new), usage=usage)
                    return self._turn_answer(session, turn, usage)
                except Exception as error:
                    name, items = self._served.name, {"new_items": request.new_items}
                    fault = callers_fault(error, name, session.task, items)
                    fault = fault or environment_fault(error, name, "next_turn")
                    # A failed call has no reply to say in what was consumed before.
                    fault.usage = tuple(merged((session.usage, usage)))
                    raise_from(fault, error)

    async def _play(
        self,
        opened: OpenSession[Any],
        offered: resource_pb2.ModelEndpoint,
        deadline: float | None,
    ) -> resource_pb2.PlayEpisodeResponse:
        """Have the environment play the session's episode."""
        session = opened.session
        endpoint = ModelEndpoint(offered.base_url, offered.key, offered.model)
        async with opened.order:
            if session.done:
                raise MeshError(
                    errors_pb2.ERROR_REASON_SESSION_STATE,
                    "The episode is over, so it can't be played.",
                    metadata={"session_id": session.id, "state": "done"},
                )
            await check_reached(endpoint)
            session.finish()
            with for_rollout(session.rollout_id), secret_masked(endpoint.key):
                try:
                    await self._play_method.call((session, endpoint), deadline=deadline)
                    if session.lost is not None:  # it may have caught the error
                        raise session.lost
                except Exception as error:
                    name = self._served.name
                    fault = callers_fault(error, name, session.task)
                    fault = fault or environment_fault(error, name, "play")
                    raise_from(without_key(fault, endpoint.key), error)
        answer = resource_pb2.PlayEpisodeResponse()
        if self._served.sandboxes:
            session.sandboxes.report(answer)
        return answer

    def _turn_answer(
        self, session: Session[Any], turn: object, usage: UsageCounter
    ) -> resource_pb2.NextTurnResponse:
        method = self._next_turn.function
        if isinstance(turn, str):
            turn = Turn(turn)
        if not isinstance(turn, Turn):
            raise WrongResult(f"returned {type(turn).__name__}. Return a Turn or text", method)
        reward = turn.reward
        if reward is not None:
            try:
                reward = turn_reward(reward, self._served.environment.reward_range)
            except WrongResult as error:
                raise WrongResult(str(error), method) from None
        items = _items(turn.say, method)
        if turn.done:
            session.finish()
        answer = resource_pb2.NextTurnResponse(
            items=items, reward=reward, done=session.done, model_usage=usage.entries()
        )
        if self._served.sandboxes:
            session.sandboxes.report(answer)
        return answer


def _items(
    said: Said | Sequence[Said] | None, method: Callable[..., Any]
) -> list[responses_pb2.Item]:
    """What an environment says, as items. Raises WrongResult for neither text nor item."""
    if said is None:
        return []
    parts = [said] if isinstance(said, _SAID) else said
    if not isinstance(parts, Sequence):
        raise WrongResult(f"returned a Turn whose 'say' is {type(parts).__name__}: {_SAY}", method)
    for part in parts:
        if not isinstance(part, _SAID):
            raise WrongResult(
                f"returned a Turn whose 'say' contains {type(part).__name__}: {_SAY}", method
            )
    return [_item(part) for part in parts]


def _texts(choices: object, method: Callable[..., Any]) -> list[str]:
    """A task's choices. Raises WrongResult for anything but texts."""
    if isinstance(choices, Sequence) and not isinstance(choices, str | bytes):
        texts = [one for one in choices if isinstance(one, str) and one]
        if len(texts) == len(choices):
            return texts
    raise WrongResult("must return a list of texts that are not empty", method)


def _item(said: Said) -> responses_pb2.Item:
    if isinstance(said, str):
        return new_message("user", said)
    if isinstance(said, Image):
        return item_from_json({"type": "message", "role": "user", "content": said.parts})
    return said


def _page(entries: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """A page of a fixed list; its tokens are positions. Raises FIELD_INVALID."""
    if size < 0:
        raise field_invalid("page_size", "must not be negative")
    start = int(token) if token.isascii() and token.isdecimal() and len(token) < 10 else 0
    if token and not 0 < start < len(entries):
        raise field_invalid("page_token", "was not issued by this server")
    end = start + min(size or _PAGE, _LARGEST_PAGE)
    return entries[start:end], str(end) if end < len(entries) else ""
