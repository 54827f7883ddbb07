"""A server that speaks OpenEnv's WebSocket protocol, with episodes that a test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

STEP_SCHEMA = {
    "title": "CountAction",
    "description": "Add to the count.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "metadata": {"type": "object", "additionalProperties": True},
        "amount": {"type": "integer", "description": "how much"},
    },
    "required": ["amount"],
}


class Refusal(Exception):
    """An error of the protocol."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        self.data = {"message": message, "code": code, **more}


class Counting:
    """One episode: count up to a target; the reward of a step is what it adds."""

    def __init__(self) -> None:
        self.count, self.target, self.steps = 0, 3, 0

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        self.count, self.steps = 0, 0
        self.target = data.get("target", 3)
        return answer({"count": 0, "target": self.target, "metadata": {"secret": 7}})

    def step(self, data: dict[str, Any]) -> dict[str, Any]:
        if unknown := data.keys() - {"amount", "metadata"}:
            problem = {"loc": [*unknown], "msg": "Extra inputs are not permitted"}
            raise Refusal("VALIDATION_ERROR", "Invalid message", errors=[problem])
        if not isinstance(data.get("amount"), int):
            problem = {"loc": ["amount"], "msg": "Field required", "type": "missing"}
            raise Refusal("VALIDATION_ERROR", "Invalid message", errors=[problem])
        self.count += data["amount"]
        self.steps += 1
        return answer({"count": self.count}, data["amount"] / 2, done=self.count >= self.target)

    def state(self) -> dict[str, Any]:
        return {"episode_id": None, "step_count": self.steps, "count": self.count}


def answer(observation: Any, reward: Any = None, *, done: Any = False) -> dict[str, Any]:
    return {"observation": observation, "reward": reward, "done": done}


class OpenEnvServer:
    """Gives each connection an episode of its own, `most` at a time.

    messages: what was received, in order. open: how many connections there are now. pongs: answers
    to `ping`s of ours. raw: sent in place of the answer to a step, when it is set.
    """

    def __init__(
        self,
        episode: Callable[[], Any] = Counting,
        schema: Any = STEP_SCHEMA,
        *,
        most: int = 100,
    ) -> None:
        self._episode, self._schema, self._most = episode, schema, most
        self.messages: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.open = 0
        self.peak = 0
        self.schemas = 0
        self.pongs = 0
        self.raw: str | bytes | None = None
        self.hangs = False
        self.closes = False
        self.sockets: list[web.WebSocketResponse] = []
        self.app = web.Application()
        self.app.router.add_get("/schema", self._answer_schema)
        self.app.router.add_get("/ws", self._serve)

    async def _answer_schema(self, request: web.Request) -> web.Response:
        self.schemas += 1
        if isinstance(self._schema, str):
            return web.Response(text=self._schema)
        return web.json_response({"action": self._schema, "observation": {}, "state": {}})

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        self.headers.append(request.headers.get("X-Test", ""))
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        self.sockets.append(socket)
        if self.open >= self._most:
            await socket.send_json(
                {"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}
            )
            await socket.close()
            return socket
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            await self._episodes(socket)
        finally:
            self.open -= 1
        return socket

    async def _episodes(self, socket: web.WebSocketResponse) -> None:
        episode = self._episode()
        async for message in socket:
            if message.type is WSMsgType.PONG:
                self.pongs += 1
                continue
            if message.type is not WSMsgType.TEXT:
                return
            request = json.loads(message.data)
            self.messages.append(request)
            kind = request["type"]
            if kind == "close":
                return
            if kind == "step" and self.hangs:
                await asyncio.Event().wait()
            if kind == "step" and self.closes:
                return
            if kind == "step" and self.raw is not None:
                await (
                    socket.send_bytes(self.raw)
                    if isinstance(self.raw, bytes)
                    else socket.send_str(self.raw)
                )
                continue
            try:
                if kind == "state":
                    reply = {"type": "state", "data": episode.state()}
                else:
                    data = getattr(episode, kind)(request.get("data", {}))
                    reply = {"type": "observation", "data": data}
            except Refusal as error:
                reply = {"type": "error", "data": error.data}
            await socket.send_json(reply)


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """The URL of an application on a free port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
