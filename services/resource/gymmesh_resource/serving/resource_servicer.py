"""ResourceService: what the environment is, its sessions, tools and turns."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import new_message
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.in_rollout import for_rollout
from gymmesh_runtime.security.ownership import owned

from ..environment import Said, Turn
from ..errors import WrongResult
from ..models import Ledger, charge
from ..rollout import Transcript
from ..session import Session
from ..task import Task
from ..verdicts import turn_reward
from .hosted import Hosted
from .sessions import Open
from .tool_calls import ToolCalls
from .unreadable import unreadable

__all__ = ["ResourceServicer"]

T = TypeVar("T")
# 128 bits, so that an id cannot be guessed.
_ID_BYTES = 16
# As many as JSON readers keep.
_SEED_BITS = 53
_PAGE = 100
_LARGEST_PAGE = 1000


class ResourceServicer:
    """The environment's RPCs, named as in the contract, which says what each does."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        environment = hosted.environment
        self._about = resource_pb2.GetEnvironmentResponse(
            name=hosted.name,
            version=environment.version,
            description=" ".join((type(environment).__doc__ or "").split()),
            multi_turn=hosted.multi_turn,
            verify_needs_session=hosted.verify_needs_session,
            retry_safe=environment.retry_safe,
            judges_groups=hosted.judges_groups,
            reward_rule=environment.reward_rule,
            models=hosted.models.names,
            session_idle_s=hosted.config.session_idle_s,
            session_limit=hosted.config.session_limit,
            instance_id=hosted.instance_id,
            contract_version=CONTRACT_VERSION,
        )
        self._tools = ToolCalls(hosted)
        self._has_session_tools = hosted.defines("session_tools")
        self._has_opening = hosted.defines("opening")
        limit_s = hosted.config.turn_timeout_s
        self._environment_opening = hosted.method(environment.opening, limit_s)
        self._environment_turn = hosted.method(environment.next_turn, limit_s)
        #: What all answers to CreateSession have in common.
        self._common = resource_pb2.CreateSessionResponse(
            instance_id=hosted.instance_id,
            tools=self._tools.offered,
            multi_turn=hosted.multi_turn,
            environment_version=environment.version,
        )

    async def GetEnvironment(
        self, request: resource_pb2.GetEnvironmentRequest, context: CallContext
    ) -> resource_pb2.GetEnvironmentResponse:
        return self._about

    async def ListTasks(
        self, request: resource_pb2.ListTasksRequest, context: CallContext
    ) -> resource_pb2.ListTasksResponse:
        page, following = _page(self._hosted.examples, request.page_size, request.page_token)
        return resource_pb2.ListTasksResponse(tasks=page, next_page_token=following)

    async def ListTools(
        self, request: resource_pb2.ListToolsRequest, context: CallContext
    ) -> resource_pb2.ListToolsResponse:
        page, following = _page(self._tools.offered, request.page_size, request.page_token)
        return resource_pb2.ListToolsResponse(tools=page, next_page_token=following)

    async def CreateSession(
        self, request: resource_pb2.CreateSessionRequest, context: CallContext
    ) -> resource_pb2.CreateSessionResponse:
        request_id = owned(context.identity, request.request_id)
        opened = await self._hosted.sessions.create(
            request_id, _mark(request), self._open, request_id, context.identity, request
        )
        return opened.answer

    async def CallTool(
        self, request: resource_pb2.CallToolRequest, context: CallContext
    ) -> resource_pb2.CallToolResponse:
        with self._hosted.sessions.using(request.session_id, context.identity) as opened:
            return await opened.tools.run(
                request.request_id,
                _mark(request),
                self._tools.call,
                opened,
                request.name,
                request.arguments,
            )

    async def NextTurn(
        self, request: resource_pb2.NextTurnRequest, context: CallContext
    ) -> resource_pb2.NextTurnResponse:
        if not self._hosted.multi_turn:
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_OFFERED,
                f"The environment {self._hosted.name!r} takes no turns.",
                metadata={"method": "gymmesh.resource.v1.ResourceService/NextTurn"},
            )
        with self._hosted.sessions.using(request.session_id, context.identity) as opened:
            mark = _mark(request)
            return await opened.turns.run(request.request_id, mark, self._turn, opened, request)

    async def CloseSession(
        self, request: resource_pb2.CloseSessionRequest, context: CallContext
    ) -> resource_pb2.CloseSessionResponse:
        await self._hosted.sessions.close(request.session_id, context.identity)
        return resource_pb2.CloseSessionResponse()

    # What acts on a session runs on after its caller's deadline, for a repeat to find: the limits
    # of the environment bound it and the model calls made for it.

    # ---- sessions

    async def _open(
        self, request_id: str, owner: str, request: resource_pb2.CreateSessionRequest
    ) -> Open[Any]:
        hosted = self._hosted
        task = Task(request.task, request.task.payload_json)
        hosted.check(task)
        session_id = secrets.token_hex(_ID_BYTES)
        with for_rollout(request.rollout_id):
            session = await hosted.new_session(session_id, task, _seed(request), request.rollout_id)
            answer = resource_pb2.CreateSessionResponse()
            answer.CopyFrom(self._common)
            answer.session_id = session.id
            answer.seed = session.seed
            stage = "session_tools"
            try:
                if self._has_session_tools:
                    answer.tools.extend(await self._tools.further(session))
                stage = "opening"
                if self._has_opening:
                    answer.items.extend(await self._opening(session))
            except BaseException as error:
                await hosted.end_session(session)
                if isinstance(error, Exception):
                    hosted.host.raise_fault(error, stage)
                raise
        return hosted.sessions.add(session, request_id, answer, owner)

    async def _opening(self, session: Session[Any]) -> list[responses_pb2.Item]:
        said = await self._environment_opening.call((session,))
        return _items(said, self._hosted.environment.opening)

    # ---- turns

    async def _turn(
        self, opened: Open[Any], request: resource_pb2.NextTurnRequest
    ) -> resource_pb2.NextTurnResponse:
        hosted, session = self._hosted, opened.session
        async with opened.order if hosted.in_order else contextlib.nullcontext():
            if session.done:
                raise MeshError(
                    errors_pb2.ERROR_REASON_SESSION_STATE,
                    "The episode is over: there are no further turns.",
                    metadata={"session_id": session.id, "state": "done"},
                )
            ledger = Ledger()
            with for_rollout(session.rollout_id):
                try:
                    new = Transcript(request.new_items)
                    turn = await self._environment_turn.call((session, new), ledger=ledger)
                    return self._taken(session, turn, ledger)
                except Exception as error:
                    told = (("new_items", request.new_items),)
                    fault = unreadable(error, hosted.name, session.task, told)
                    fault = fault or hosted.host.fault(error, "next_turn")
                    charge(fault, (session.usage, ledger))
                    if fault is error:
                        raise
                    raise fault from error

    def _taken(
        self, session: Session[Any], turn: object, ledger: Ledger
    ) -> resource_pb2.NextTurnResponse:
        if isinstance(turn, str):
            turn = Turn(turn)
        environment = self._hosted.environment
        method = environment.next_turn
        if not isinstance(turn, Turn):
            raise WrongResult(f"gave {type(turn).__name__}, neither a Turn nor text", method)
        reward = turn.reward
        if reward is not None:
            try:
                reward = turn_reward(reward, environment.reward_range)
            except WrongResult as error:
                raise WrongResult(str(error), method) from None
        items = _items(turn.say, method)
        if turn.done:
            session.finish()
        return resource_pb2.NextTurnResponse(
            items=items,
            reward=reward,
            done=session.done,
            model_usage=ledger.entries(),
        )


def _seed(request: resource_pb2.CreateSessionRequest) -> int:
    """The request's seed, or else the task's, or else a new one."""
    if request.HasField("seed"):
        return request.seed
    if request.task.HasField("seed"):
        return request.task.seed
    return secrets.randbits(_SEED_BITS)


def _mark(request: Message) -> int:
    """A hash of the whole request, by which a repeat is told from a reused id."""
    return hash(request.SerializeToString(deterministic=True))


def _items(
    said: Said | Sequence[Said] | None, method: Callable[..., Any]
) -> list[responses_pb2.Item]:
    """What an environment says as items. Raises WrongResult for what is neither text nor item."""
    if said is None:
        return []
    parts = [said] if isinstance(said, str | responses_pb2.Item) else said
    if not isinstance(parts, Sequence):
        raise WrongResult(f"says {type(parts).__name__}: say text, an item or a list", method)
    for part in parts:
        if not isinstance(part, str | responses_pb2.Item):
            raise WrongResult(f"says {type(part).__name__}: say text, an item or a list", method)
    return [new_message("user", part) if isinstance(part, str) else part for part in parts]


def _page(entries: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """A page of a fixed list; its tokens are positions. Raises FIELD_INVALID."""
    if size < 0:
        raise _invalid("page_size", "must not be negative")
    start = int(token) if token.isascii() and token.isdecimal() and len(token) < 10 else 0
    if token and not 0 < start < len(entries):
        raise _invalid("page_token", "is none that this server gave")
    end = start + min(size or _PAGE, _LARGEST_PAGE)
    return entries[start:end], str(end) if end < len(entries) else ""


def _invalid(field: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID, f"{field} {problem}.", metadata={"field": field}
    )
