"""The environment's tools for programs, over MCP: by the official client, and by hand."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import aiohttp
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_agent.agent import Agent, Completion
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.gateway.gateway import Gateway
from gymmesh_resource.environments.mcp.connection import McpConnection
from gymmesh_resource.environments.mcp.options import ServerOptions
from gymmesh_responses import item_from_json
from gymmesh_runtime.errors import MeshError, from_status
from tests.support.images import image_part, png_url
from tests.unit.agent.mesh import Mesh, ask, running
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment
from tests.unit.agent.streams import Events
from tests.unit.gateway.programs import client

OK = rollout_pb2.TOOL_OUTCOME_OK
ERROR = rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
OPENED = rollout_pb2.SandboxOpened(
    sandbox=grant_pb2.SandboxRef(sandbox_id="sb-1", image="py:1"), role="workspace"
)


class ToolsAgent(Agent):
    """Runs `body` with a gateway that offers the environment's tools."""

    runs_programs: ClassVar[bool] = True
    offers: ClassVar[bool] = True
    body: ClassVar[Callable[[Gateway], Awaitable[None]]]

    async def run(self, context: RolloutContext) -> Completion:
        async with context.gateway(tools=self.offers) as gateway:
            await type(self).body(gateway)
        return Completion(rollout_pb2.STOP_REASON_PROGRAM_EXITED)


async def add(arguments: bytes) -> resource_pb2.CallToolResponse:
    given = json.loads(arguments)
    return resource_pb2.CallToolResponse(text=str(given["a"] + given["b"]).encode(), outcome=OK)


async def picture(arguments: bytes) -> resource_pb2.CallToolResponse:
    parts = [{"type": "input_text", "text": "see"}, image_part(1)]
    item = item_from_json({"type": "function_call_output", "call_id": "", "output": parts})
    return resource_pb2.CallToolResponse(parts=item.function_call_output.parts, outcome=OK)


async def refuse(arguments: bytes) -> resource_pb2.CallToolResponse:
    return resource_pb2.CallToolResponse(text=b"not so", outcome=ERROR)


async def finish(arguments: bytes) -> resource_pb2.CallToolResponse:
    return resource_pb2.CallToolResponse(text=b"over", outcome=OK, done=True)


async def open_sandbox(arguments: bytes) -> resource_pb2.CallToolResponse:
    reply = resource_pb2.CallToolResponse(text=b"opened", outcome=OK)
    reply.sandboxes.append(OPENED)
    return reply


async def break_down(arguments: bytes) -> resource_pb2.CallToolResponse:
    raise MeshError(errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "the environment's own words")


async def run(
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[[Gateway], Awaitable[None]],
    *,
    offers: bool = True,
) -> tuple[Events, Mesh]:
    monkeypatch.setattr(ToolsAgent, "body", staticmethod(body), raising=False)
    monkeypatch.setattr(ToolsAgent, "offers", offers)
    tools = {
        "add": add,
        "refuse": refuse,
        "picture": picture,
        "finish": finish,
        "open_sandbox": open_sandbox,
        "break_down": break_down,
    }
    config = AgentConfig(use=f"{__name__}:{ToolsAgent.__name__}")
    models = {"policy": ScriptedModel([], repeat=False)}
    async with running("direct", TinyEnvironment(tools=tools), models, config) as mesh:
        return await mesh.run(ask()), mesh


async def post(gateway: Gateway, body: Any, key: str = "", method: str = "POST") -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key or gateway.key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{gateway.url}/mcp", data=raw, headers=headers) as answer,
    ):
        text = await answer.text()
        return answer.status, json.loads(text) if text else None


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


async def test_the_official_client_lists_and_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def body(gateway: Gateway) -> None:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        options = ServerOptions(url=f"{gateway.url}/mcp", headers=headers)
        connection = McpConnection("environment", options, 60.0)
        await connection.open()
        seen.append([tool.name for tool in connection.tools])
        result = await connection.call("add", {"a": 20, "b": 22})
        seen.append((result.content[0].model_dump()["text"], result.is_error))
        result = await connection.call("refuse", {})
        seen.append((result.content[0].model_dump()["text"], result.is_error))
        await connection.close()

    events, mesh = await run(monkeypatch, body)
    names = ["add", "refuse", "picture", "finish", "open_sandbox", "break_down"]
    assert seen == [names, ("42", False), ("not so", True)]
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_PROGRAM_EXITED
    ids = [call.request_id for call in mesh.environment.called]
    assert len(set(ids)) == 2
    assert not any(event.HasField("tool_call_completed") for event in events)


async def test_no_tool_gets_the_rollouts_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(gateway: Gateway) -> None:
        arguments = {"a": gateway.key, "b": "!"}
        _, answer = await post(gateway, request("tools/call", name="add", arguments=arguments))
        assert answer["result"]["content"] == [{"type": "text", "text": "***!"}]

    await run(monkeypatch, body)


async def test_the_sandboxes_of_a_tool_are_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(gateway: Gateway) -> None:
        status, _ = await post(gateway, request("tools/call", name="open_sandbox"))
        assert status == 200

    events, _ = await run(monkeypatch, body)
    assert [one.sandbox_opened for one in events if one.HasField("sandbox_opened")] == [OPENED]


async def test_a_tool_that_ends_the_episode_ends_the_rollout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    async def body(gateway: Gateway) -> None:
        seen.append(await post(gateway, request("tools/call", name="finish")))
        async with client(gateway) as openai_client:
            with pytest.raises(Exception, match="over"):
                await openai_client.responses.create(model="m", input="more?")

    events, _ = await run(monkeypatch, body)
    assert seen[0][1]["result"]["content"] == [{"type": "text", "text": "over"}]
    assert events[-1].completed.stop_reason == rollout_pb2.STOP_REASON_ENVIRONMENT_DONE


async def test_a_tool_that_fails_fails_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def body(gateway: Gateway) -> None:
        seen.append(await post(gateway, request("tools/call", name="break_down")))

    events, _ = await run(monkeypatch, body)
    assert "own words" not in json.dumps(seen)
    failure = events[-1].failed.failure
    assert failure.boundary == rollout_pb2.BOUNDARY_RESOURCE
    assert from_status(failure.status).reason_name == "ENVIRONMENT_FAULT"


async def test_what_is_no_request_is_answered_as_json_rpc_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(gateway: Gateway) -> None:
        for raw, code in (
            (b"{", -32700),
            (b"[" * 100_000, -32700),
            ([request("ping")], -32600),
            ({"id": 1}, -32600),
            ({"id": {}, "method": "ping"}, -32600),
            ({"id": 1, "method": "ping", "params": []}, None),
            ({"id": 1, "method": "ping", "params": [1]}, -32600),
            (request("resources/list"), -32601),
            (request("tools/call", name="no_such"), -32602),
            (request("tools/call", name=["add"]), -32602),
            (request("tools/call", name="add", arguments=[1]), -32602),
        ):
            status, answer = await post(gateway, raw)
            assert status == 200
            assert answer.get("error", {}).get("code") == code, raw
        assert await post(gateway, {"method": "notifications/initialized"}) == (202, None)
        assert (await post(gateway, b"", method="GET"))[0] == 405
        assert (await post(gateway, request("ping"), key="sk-gymmesh-" + "x" * 32))[0] == 401
        asked = request("initialize", protocolVersion="2024-11-05")
        assert (await post(gateway, asked))[1]["result"]["protocolVersion"] == "2024-11-05"

    events, _ = await run(monkeypatch, body)
    assert events[-1].HasField("completed"), events[-1]


async def test_they_are_not_there_unless_they_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(gateway: Gateway) -> None:
        assert (await post(gateway, request("tools/list")))[0] == 404

    events, _ = await run(monkeypatch, body, offers=False)
    assert events[-1].HasField("completed"), events[-1]


async def test_an_image_is_mcps_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def program(gateway: Gateway) -> None:
        status, answer = await post(gateway, request("tools/call", name="picture", arguments={}))
        assert status == 200
        seen.extend(answer["result"]["content"])

    await run(monkeypatch, program)
    data = png_url(1).partition(",")[2]
    assert seen == [
        {"type": "text", "text": "see"},
        {"type": "image", "data": data, "mimeType": "image/png"},
    ]
