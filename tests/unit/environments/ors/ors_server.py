"""A server that speaks the HTTP API of the Open Reward Standard, on aiohttp."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from aiohttp import web

TASKS = [{"question": f"{n} + {n}?", "answer": str(n + n)} for n in range(1, 6)]
SUBMIT = {
    "name": "submit",
    "description": "Give the answer.",
    "input_schema": {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
    },
}
HINT = {"name": "hint", "description": "", "input_schema": None}


def output(*texts: str, reward: Any = None, finished: Any = False, **more: Any) -> dict[str, Any]:
    blocks = [{"text": text, "detail": None, "type": "text"} for text in texts]
    whole = {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished, **more}
    return {"ok": True, "output": whole}


class OrsServer:
    """One environment, `sums`, whose tool `submit` has the reward.

    raw: the body of a call's stream in place of the right one. status: of every call, where it is
    not 200. wants: `header` or `body`, where secrets are looked for. starting: how often `prompt`
    says that the session is not ready.
    """

    def __init__(self, *, terminal: bool = False, wants: str = "body", starting: int = 0) -> None:
        self.sessions: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.calls: list[tuple[str, Any]] = []
        self.keys: set[str] = set()
        self.secrets: list[Any] = []
        self.pings = 0
        self.raw: bytes | None = None
        self.status = 200
        self.hangs = False
        self.breaks = False
        self.forgets = False
        self.reward: Any = None
        self._terminal, self._wants, self._starting = terminal, wants, starting
        self.app = web.Application(middlewares=[self._seen])
        self.app.add_routes(
            [
                web.get("/list_environments", self._environments),
                web.post("/create_session", self._new_session),
                web.post("/create", self._create),
                web.post("/ping", self._ping),
                web.post("/delete", self._delete),
                web.post("/delete_session", self._deleted),
                web.post("/sums/num_tasks", self._num_tasks),
                web.get("/sums/task_tools", self._tools),
                web.get("/sums/prompt", self._prompt),
                web.post("/sums/call", self._call),
            ]
        )

    @web.middleware
    async def _seen(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.keys.add(request.headers.get("X-API-Key", ""))
        response: web.StreamResponse = await handler(request)
        return response

    async def _environments(self, request: web.Request) -> web.Response:
        return web.json_response(["sums"])

    async def _num_tasks(self, request: web.Request) -> web.Response:
        if (await request.json())["split"] != "train":
            return web.json_response({"detail": "Invalid split"}, status=400)
        return web.json_response({"num_tasks": len(TASKS)})

    async def _new_session(self, request: web.Request) -> web.Response:
        sid = uuid.uuid4().hex
        return _events(
            f"event: task_id\r\ndata: {sid}\r\n\r\nevent: end\r\ndata: \r\n\r\n".encode()
        )

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "secrets" in body and self._wants == "header":
            detail = [{"loc": ["body", "secrets"], "msg": "Extra inputs are not permitted"}]
            return web.json_response({"detail": detail}, status=422)
        self.secrets.append(
            body.get("secrets") if self._wants == "body" else request.headers.get("X-Secrets")
        )
        if "task_spec" in body:
            spec = body["task_spec"]
        elif body["index"] < len(TASKS):
            spec = TASKS[body["index"]]
        else:
            return web.json_response({"detail": "Invalid index"}, status=400)
        self.sessions[request.headers["X-Session-ID"]] = spec
        return web.json_response({"sid": request.headers["X-Session-ID"]})

    async def _ping(self, request: web.Request) -> web.Response:
        self.pings += 1
        status = 404 if self.forgets else 200
        return web.json_response({"status": "ok"}, status=status)

    async def _delete(self, request: web.Request) -> web.Response:
        sid = request.headers["X-Session-ID"]
        self.sessions.pop(sid, None)
        self.deleted.append(sid)
        return web.json_response({"sid": sid})

    async def _deleted(self, request: web.Request) -> web.Response:
        return web.json_response({"sid": request.headers["X-Session-ID"]})

    async def _tools(self, request: web.Request) -> web.Response:
        if self._terminal:
            terminal = {"name": "submit", "arg": "answer", "description": ""}
            return web.json_response({"tools": [HINT], "terminal_tool": terminal})
        return web.json_response({"tools": [HINT, SUBMIT]})

    async def _prompt(self, request: web.Request) -> web.Response:
        if self._starting:
            self._starting -= 1
            headers = {"X-Backend-State": "starting", "Retry-After": "0"}
            return web.json_response({"detail": "starting"}, status=503, headers=headers)
        spec = self.sessions[request.headers["X-Session-ID"]]
        return web.json_response([{"text": spec["question"], "detail": None, "type": "text"}])

    async def _call(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        sid = request.headers["X-Session-ID"]
        self.calls.append((body["name"], body["input"]))
        if self.hangs:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.json_response({"detail": "it broke"}, status=self.status)
        if self.breaks:
            return await _broken(request)
        if self.raw is not None:
            return _events(self.raw)
        return _events(_stream(json.dumps(self._answer(sid, body["name"], body["input"]))))

    def _answer(self, sid: str, name: str, given: Any) -> dict[str, Any]:
        if name == "hint":
            return output("no", "hints", reward=-0.25)
        if "answer" not in given:
            error = "Tool input validation error: answer: Field required"
            return {"ok": False, "error": error, "reason": "input_validation"}
        right = given["answer"] == self.sessions[sid]["answer"]
        reward = self.reward if self.reward is not None else float(right)
        return output("Correct!" if right else "No.", reward=reward, finished=True)


def _stream(text: str) -> bytes:
    """An answer as the standard's servers send it: in pieces, with signs of life between them."""
    middle = len(text) // 2
    return (
        f"event: task_id\r\ndata: 1\r\n\r\n: ping\r\n\r\nevent: chunk\r\ndata: {text[:middle]}\r\n"
        f"\r\nevent: end\r\ndata: {text[middle:]}\r\n\r\n"
    ).encode()


def _events(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="text/event-stream")


async def _broken(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"event: task_id\ndata: 1\n\nevent: chunk\ndata: {")
    assert request.transport is not None
    request.transport.abort()
    return response
