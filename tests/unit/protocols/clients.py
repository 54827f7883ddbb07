"""Clients of the protocols in a few lines each, over raw HTTP: what the protocol itself says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from tests.support.shelf import Play


class ServerSaid(Exception):
    """An error that the server sent; `code` is the protocol's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OpenEnvClient:
    """A socket of OpenEnv."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, kind: str, data: Mapping[str, Any] | None = None) -> Any:
        """The data of the answer. Raises ServerSaid."""
        await self._socket.send_str(json.dumps({"type": kind, "data": data or {}}))
        answer = json.loads((await self._socket.receive()).data)
        if answer["type"] == "error":
            raise ServerSaid(answer["data"]["code"], answer["data"]["message"])
        return answer["data"]

    async def play(self, play: Play) -> float | None:
        asked = play.as_json()
        await self.send("reset", {"task_id": asked["task_id"], "seed": asked["seed"]})
        for name, arguments in asked["calls"]:
            call = {"type": "call_tool", "tool_name": name, "arguments": arguments}
            result = await self.send("step", call)
            if result["done"]:
                return float(result["reward"])
        for _ in range(asked["turns"]):
            result = await self.send("step", {"type": "answer", "answer": asked["message"]})
            if result["done"]:
                return float(result["reward"])
        return None


class OrsClient:
    """One session of ORS after another."""

    def __init__(self, http: aiohttp.ClientSession, url: str, name: str) -> None:
        self._http = http
        self._url = url
        self._name = name

    def request(
        self, method: str, path: str, sid: str = "", body: Any = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"X-Session-ID": sid} if sid else {}
        return self._http.request(method, f"{self._url}{path}", json=body, headers=headers)

    async def new_id(self) -> str:
        async with self.request("POST", "/create_session") as reply:
            return dict(events(await reply.text()))["task_id"]

    async def call(self, sid: str, name: str, arguments: Mapping[str, Any]) -> Any:
        """What a call gave. Raises ServerSaid for an error of the stream."""
        body = {"name": name, "input": arguments}
        async with self.request("POST", f"/{self._name}/call", sid, body) as reply:
            assert reply.status == 200, await reply.text()
            return result_of(await reply.text())

    async def play(self, play: Play) -> float | None:
        asked = play.as_json()
        sid = await self.new_id()
        spec = {"task_id": asked["task_id"], "seed": asked["seed"]}
        async with self.request("POST", "/create", sid, {"task_spec": spec}) as reply:
            assert reply.status == 200, await reply.text()
        try:
            for name, arguments in asked["calls"]:
                result = await self.call(sid, name, arguments)
                if result["ok"] and result["output"]["finished"]:
                    return float(result["output"]["reward"])
            for _ in range(asked["turns"]):
                result = await self.call(sid, "answer", {"answer": asked["message"]})
                if result["output"]["finished"]:
                    return float(result["output"]["reward"])
            return None
        finally:
            async with self.request("POST", "/delete", sid) as reply:
                assert reply.status == 200


class NemoGymClient:
    """An agent's part in NeMo Gym: seed, tools, verify, with the cookies of one rollout."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def rows(self) -> list[dict[str, Any]]:
        async with aiohttp.ClientSession() as http, http.get(f"{self._url}/rows.jsonl") as reply:
            return [json.loads(line) for line in (await reply.text()).splitlines()]

    async def play(self, play: Play) -> float | None:
        asked = play.as_json()
        row = next(one for one in await self.rows() if one["task_id"] == asked["task_id"])
        row["seed"] = asked["seed"]
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            await self._post(http, "seed_session", row)
            output: list[Any] = []
            for number, (name, arguments) in enumerate(asked["calls"]):
                _, text = await self._send(http, name, arguments)
                output += called(f"call_{number}", name, arguments, text)
            output.append(said(asked["message"]))
            body = {**row, "response": {"id": "r", "object": "response", "output": output}}
            return float((await self._post(http, "verify", body))["reward"])

    async def _post(self, http: aiohttp.ClientSession, path: str, body: Any) -> Any:
        status, text = await self._send(http, path, body)
        if status != 200:
            raise ServerSaid(str(status), text)
        return json.loads(text)

    async def _send(self, http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, str]:
        async with http.post(f"{self._url}/{path}", json=body) as reply:
            return reply.status, await reply.text()


def called(call_id: str, name: str, arguments: Any, output: str) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": call_id, "name": name, "status": "completed"}
    answer = {"type": "function_call_output", "call_id": call_id, "output": output}
    return [call | {"arguments": json.dumps(arguments)}, answer]


def said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "content": content}


def events(text: str) -> Sequence[tuple[str, str]]:
    """The events of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in fields:
            found.append((fields["event"], fields.get("data", "")))
    return found


def result_of(text: str) -> Any:
    """The result of a call's stream. Raises ServerSaid."""
    listed = events(text)
    if listed[-1][0] == "error":
        raise ServerSaid("error", listed[-1][1])
    return json.loads("".join(data for name, data in listed if name in ("chunk", "end")))
