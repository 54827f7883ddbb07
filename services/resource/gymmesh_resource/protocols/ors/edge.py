"""The routes of ORS over the façade."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource.protocols.facade import ANSWER, EnvironmentFacade
from gymmesh_resource.protocols.ors.documents import (
    messages_document,
    prompt_document,
    refusal_document,
    step_document,
    tools_document,
)
from gymmesh_resource.protocols.ors.streams import CallStreams, stream_call, stream_id
from gymmesh_resource.protocols.replies import (
    HttpRefusal,
    document,
    object_field,
    read_object,
    text_field,
    whole_number,
)
from gymmesh_resource.protocols.session import ProtocolSession
from gymmesh_resource.protocols.task_api import check_name, task_of
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_responses import JsonValue
from gymmesh_runtime.errors import MeshError, field_invalid

_SESSION: Final = "X-Session-ID"
_SIGNED: Final = 16
_LEAST: Final = 64


class _Held:
    """A client's session with its calls; `opened` is None while it opens."""

    def __init__(self) -> None:
        self.opened: ProtocolSession | None = None
        self.calls = CallStreams()


class OrsEdge:
    """Routes over the façade.

    `/create_session` issues signed session ids, so ids that clients invent open nothing. If a
    client leaves a session, the environment closes it with its other idle sessions.
    """

    def __init__(self, facade: EnvironmentFacade, tasks: TaskTable) -> None:
        self._facade = facade
        self._tasks = tasks
        self._key = secrets.token_bytes(32)
        self._held: dict[str, _Held] = {}
        self._look_at = _LEAST

    def problem(self) -> str:
        """ORS can serve every environment."""
        return ""

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds its routes, those of an environment also without its name."""
        router.add_post("/create_session", self._create_session)
        router.add_post("/delete_session", self._delete_session)
        router.add_post("/create", self._create)
        router.add_post("/delete", self._delete)
        router.add_post("/ping", self._ping)
        router.add_get("/version", self._version)
        for path in ("/{name}", ""):
            router.add_get(f"{path}/tools", self._tools)
            router.add_get(f"{path}/task_tools", self._task_tools)
            router.add_get(f"{path}/prompt", self._prompt)
            router.add_get(f"{path}/messages", self._messages)
            router.add_post(f"{path}/call", self._call)

    async def close(self) -> None:
        """Close the sessions of its clients."""
        for key in list(self._held):
            await self._end(key)

    async def _create_session(self, request: web.Request) -> web.StreamResponse:
        return await stream_id(request, self._new_id())

    async def _delete_session(self, request: web.Request) -> web.Response:
        return document({"sid": self._id_of(request)})

    async def _create(self, request: web.Request) -> web.Response:
        """Open the session of a task."""
        session_id = self._id_of(request)
        body = await read_object(request)
        name = text_field(body, "env_name") or self._facade.name
        if name.lower() != self._facade.name.lower():
            raise HttpRefusal(HTTPStatus.NOT_FOUND, f"unknown environment {name!r:.100}")
        if body.get("toolset_name") is not None:
            raise field_invalid(
                "toolset_name",
                "must be omitted: this server offers only the tools of the environment",
            )
        if session_id in self._held:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "Session already exists")
        spec = object_field(body, "task_spec") or body
        task = task_of(self._tasks, spec)
        self._forget_closed()
        held = self._held[session_id] = _Held()
        try:
            held.opened = await self._facade.open(task, "ors", whole_number(spec, "seed"))
        finally:
            if held.opened is None:
                self._held.pop(session_id, None)
        if self._held.get(session_id) is not held:  # deleted meanwhile
            await held.opened.close()
            raise HttpRefusal(HTTPStatus.GONE, "Session deleted")
        return document({"sid": session_id})

    async def _delete(self, request: web.Request) -> web.Response:
        session_id = self._id_of(request)
        await self._end(session_id)
        return document({"sid": session_id})

    async def _ping(self, request: web.Request) -> web.Response:
        self._session_of(request)
        return document({"status": "ok"})

    async def _version(self, request: web.Request) -> web.Response:
        return document({"version": self._facade.about.version, "build_sha": None})

    async def _tools(self, request: web.Request) -> web.Response:
        check_name(request, self._facade.name)
        return document(self._listed(None))

    async def _task_tools(self, request: web.Request) -> web.Response:
        check_name(request, self._facade.name)
        return document(self._listed(self._session_of(request)[0]))

    async def _prompt(self, request: web.Request) -> web.Response:
        check_name(request, self._facade.name)
        return document(prompt_document(self._session_of(request)[0]))

    async def _messages(self, request: web.Request) -> web.Response:
        check_name(request, self._facade.name)
        return document(messages_document(self._session_of(request)[0]))

    async def _call(self, request: web.Request) -> web.StreamResponse:
        """Call a tool, or take up the stream of a call again."""
        check_name(request, self._facade.name)
        session, calls = self._session_of(request)
        body = await read_object(request)
        call_id = text_field(body, "task_id")
        if not call_id:
            name, arguments = text_field(body, "name"), object_field(body, "input")
            call_id = calls.begin(lambda call_id: self._act(session, name, arguments, call_id))
        return await stream_call(request, call_id, calls.find(call_id))

    async def _act(
        self, session: ProtocolSession, name: str, arguments: dict[str, Any], call_id: str
    ) -> dict[str, JsonValue]:
        """What a call gave, as a document. Raises MeshError."""
        try:
            if name != self._facade.answer_tool(session.tools).name:
                return step_document(await session.act(name, arguments, call_id))
            answer = arguments.get(ANSWER)
            if not isinstance(answer, str) or len(arguments) > 1:
                why = (
                    f"Tool input validation error: {name} needs exactly one argument: "
                    f"{ANSWER!r}, which is text"
                )
                return refusal_document(why, "input_validation")
            return step_document(await session.say(answer))
        except MeshError as error:
            if error.reason != errors_pb2.ERROR_REASON_SESSION_STATE:
                raise
            return refusal_document(error.message, "episode_finished")

    def _listed(self, session: ProtocolSession | None) -> dict[str, JsonValue]:
        tools = self._facade.tools if session is None else session.tools
        ends = not self._facade.about.multi_turn
        return tools_document(tools, self._facade.answer_tool(tools), answer_ends=ends)

    def _session_of(self, request: web.Request) -> tuple[ProtocolSession, CallStreams]:
        """The session of a request, which is not idle then. Raises HttpRefusal."""
        held = self._held.get(self._id_of(request))
        if held is None or held.opened is None:
            raise HttpRefusal(HTTPStatus.NOT_FOUND, "Active environment not found")
        if not self._facade.is_open(held.opened):
            raise HttpRefusal(
                HTTPStatus.GONE, "The session was closed because it was idle for too long"
            )
        held.opened.touch()
        return held.opened, held.calls

    async def _end(self, session_id: str) -> None:
        held = self._held.pop(session_id, None)
        if held is not None and held.opened is not None:
            held.calls.cancel()
            await held.opened.close()

    def _forget_closed(self) -> None:
        """So that there are at most twice as many as are open."""
        if len(self._held) < self._look_at:
            return
        for key, held in list(self._held.items()):
            if held.opened is not None and not self._facade.is_open(held.opened):
                del self._held[key]
        self._look_at = max(_LEAST, 2 * len(self._held))

    def _new_id(self) -> str:
        chance = secrets.token_hex(16)
        return f"{chance}-{self._signature(chance)}"

    def _id_of(self, request: web.Request) -> str:
        """The session's id. Raises HttpRefusal where there is none, or one that is made up."""
        session_id = request.headers.get(_SESSION, "").strip()
        if not session_id:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, f"{_SESSION} header is required")
        chance, _, signature = session_id.partition("-")
        wanted = self._signature(chance)
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), wanted.encode()):
            raise HttpRefusal(HTTPStatus.NOT_FOUND, "unknown session. Create a session first")
        return session_id

    def _signature(self, chance: str) -> str:
        signed = hmac.new(self._key, chance.encode("utf-8", "replace"), hashlib.sha256)
        return signed.hexdigest()[: 2 * _SIGNED]
