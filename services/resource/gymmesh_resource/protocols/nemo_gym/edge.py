"""NeMo Gym's routes over the façade.

Agents of NeMo Gym show the model every answer of a tool's path, errors included. So a fault of the
environment fails the session, and `/verify` returns the failure in place of a reward.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from http import HTTPStatus
from typing import Final

from aiohttp import web

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols.content import ShownImage, text_of_parts
from gymmesh_resource.protocols.facade import EnvironmentFacade
from gymmesh_resource.protocols.nemo_gym.documents import (
    ENVIRONMENT_SERVER,
    row_in,
    row_of,
    stop_in,
    transcript_in,
    verdict_in,
)
from gymmesh_resource.protocols.replies import document, error_answer, read_object
from gymmesh_resource.protocols.session import ProtocolSession
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_responses import CodecError, JsonValue, dumps, loads
from gymmesh_runtime.errors import MeshError, field_invalid

COOKIE: Final = "gymmesh_session"
# Verdicts that are kept for a request that is sent again.
_KEPT: Final = 256
_TOOL_STATUS: Final = {
    rollout_pb2.TOOL_OUTCOME_OK: HTTPStatus.OK,
    rollout_pb2.TOOL_OUTCOME_TOOL_ERROR: HTTPStatus.BAD_REQUEST,
    rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS: HTTPStatus.UNPROCESSABLE_ENTITY,
    rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL: HTTPStatus.NOT_FOUND,
}
_NDJSON: Final = "application/x-ndjson"
_ROWS: Final = "/rows.jsonl"
_WRITE_S: Final = 60.0

_LOGGER = logging.getLogger("gymmesh.resource")


class NemoGymEdge:
    """Routes over the façade. The task is the row that the agent sends; `tasks` are offered as such
    rows at `/rows.jsonl`.
    """

    def __init__(self, facade: EnvironmentFacade, tasks: TaskTable) -> None:
        self._facade = facade
        self._tasks = tasks
        self._taken: frozenset[str] = frozenset()
        self._ended: OrderedDict[str, tuple[rollout_pb2.Verification, float] | MeshError]
        self._ended = OrderedDict()

    def problem(self) -> str:
        """Why agents of NeMo Gym can't use the environment; empty if they can."""
        if self._facade.about.multi_turn:
            return (
                "the environment takes turns, but agents of NeMo Gym end at the model's "
                "first message"
            )
        taken = sorted(self._taken & {tool.name for tool in self._facade.tools})
        return (
            f"the tool {taken[0]!r} has the name of one of the server's own paths. Rename the tool"
            if taken
            else ""
        )

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds its routes after those of other protocols: any other path may be a tool's."""
        router.add_post("/seed_session", self._seed)
        router.add_post("/verify", self._verify)
        router.add_post("/close_session", self._close)
        router.add_post("/aggregate_metrics", self._aggregate)
        router.add_get("/reverify_mode", self._reverify_mode)
        router.add_get(_ROWS, self._rows)
        self._taken = frozenset(
            route.resource.canonical.removeprefix("/")
            for route in router.routes()
            if route.resource is not None and route.method == "POST"
        )
        router.add_post("/{tool}", self._tool)

    async def close(self) -> None:
        """Its sessions are closed with the environment."""
        self._ended.clear()

    async def _seed(self, request: web.Request) -> web.Response:
        """Open a session for the row, and give its cookie."""
        body = await read_object(request)
        if ENVIRONMENT_SERVER in body:
            raise field_invalid(
                ENVIRONMENT_SERVER,
                "is a key of NeMo Gym's Environment Server, but this server is a resources server. "
                "Send the row of a task",
            )
        session = await self._facade.open(self._tasks.of_row(row_in(body)), "nemo-gym")
        try:
            self._refuse(session)
        except MeshError:
            await session.close()
            raise
        answer = document({})
        answer.set_cookie(COOKIE, session.id, httponly=True, samesite="Strict")
        return answer

    def _refuse(self, session: ProtocolSession) -> None:
        """Raises FIELD_INVALID for a session that the protocol cannot carry."""
        if session.first_items:
            raise field_invalid(
                "session", "begins with messages of the environment, which NeMo Gym cannot carry"
            )
        for tool in session.tools:
            if tool.name in self._taken:
                raise field_invalid(
                    "tools",
                    f"has the tool {tool.name!r}, but this name is one of the server's own paths. "
                    "Rename the tool",
                )

    async def _tool(self, request: web.Request) -> web.Response:
        session = self._facade.find(request.cookies.get(COOKIE, ""))
        if session is None:
            return document({"detail": "there is no session. POST to /seed_session first"}, 404)
        arguments = await read_object(request)
        step = await session.act(request.match_info["tool"], arguments)
        if any(isinstance(part, ShownImage) for part in step.parts):
            session.fail(error := _no_images(self._facade.name))
            raise error
        text = text_of_parts(step.parts)
        return web.Response(
            text=text, status=_TOOL_STATUS[step.outcome], content_type=_content_type(text)
        )

    async def _verify(self, request: web.Request) -> web.Response:
        """The verdict on the response. It ends the session; a repeat gets the same answer."""
        body = await read_object(request)
        items, stop = transcript_in(body), stop_in(body)
        key = request.cookies.get(COOKIE, "")
        session = self._facade.find(key)
        if session is not None:
            await self._judge(key, session, items, stop)
        kept = self._ended.get(key)
        if isinstance(kept, MeshError):
            return error_answer(kept, HTTPStatus.INTERNAL_SERVER_ERROR)
        if kept is None:
            task = self._tasks.of_row(row_in(body))
            verdict = await self._facade.judge_without_session(task, items, stop)
            kept = verdict, verdict.reward
        return document(verdict_in(body, *kept))

    async def _judge(
        self,
        key: str,
        session: ProtocolSession,
        items: list[responses_pb2.Item],
        stop: rollout_pb2.StopReason.ValueType,
    ) -> None:
        """Judge a session, keep what came of it, and close it."""
        try:
            verdict = session.verification
            if verdict is None:
                verdict = (await session.judge(items, stop)).verification
            assert verdict is not None
            self._ended[key] = verdict, verdict.reward
        except MeshError as error:
            self._ended[key] = error
        while len(self._ended) > _KEPT:
            self._ended.popitem(last=False)
        await session.close()

    async def _close(self, request: web.Request) -> web.Response:
        session = self._facade.find(request.cookies.get(COOKIE, ""))
        if session is not None:
            await session.close()
        return document(await read_object(request))

    async def _aggregate(self, request: web.Request) -> web.Response:
        """The mean reward; its other figures are made by the collector's own profile."""
        responses = (await read_object(request)).get("verify_responses")
        rewards = [
            float(one["reward"])
            for one in (responses if isinstance(responses, list) else [])
            if isinstance(one, dict) and isinstance(one.get("reward"), int | float)
        ]
        figures: JsonValue = {"mean/reward": sum(rewards) / len(rewards)} if rewards else {}
        return document(
            {"group_level_metrics": [], "agent_metrics": figures, "key_metrics": figures}
        )

    async def _reverify_mode(self, request: web.Request) -> web.Response:
        needed = self._facade.about.verify_needs_session
        return document("unsupported" if needed else "stateless")

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        """The tasks as rows for NeMo Gym's agents, with the environment's tools in them."""
        answer = web.StreamResponse(headers={"Content-Type": _NDJSON})
        await answer.prepare(request)
        try:
            for split in self._tasks.splits:
                for index in range(self._tasks.count(split)):
                    row = row_of(self._tasks.task(split, index), self._facade.tools)
                    async with asyncio.timeout(_WRITE_S):
                        await answer.write(dumps(row) + b"\n")
            await answer.write_eof()
        except (MeshError, TimeoutError) as error:
            # The answer has begun: all that is left is to cut it off.
            _LOGGER.warning("%s was cut off: %s", _ROWS, error)
            raise ConnectionResetError(str(error)) from error
        return answer


def _no_images(name: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        f"A tool of the environment {name!r} answered with an image, which NeMo Gym cannot carry.",
    )


def _content_type(text: str) -> str:
    try:
        loads(text)
    except CodecError:
        return "text/plain"
    return "application/json"
