"""OpenEnv's protocol: episodes over a socket, its errors, its ends, and its HTTP routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.protocols.clients import OpenEnvClient, ServerSaid
from tests.unit.protocols.offered import PIXEL, Offered, Office, Paid, Talk, offered


def answer(text: str) -> dict[str, Any]:
    return {"type": "answer", "answer": text}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


async def refused(client: OpenEnvClient, kind: str, data: Any = None) -> tuple[str, str]:
    with pytest.raises(ServerSaid) as raised:
        await client.send(kind, data)
    return raised.value.code, str(raised.value)


async def test_an_episode() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        assert await client.send("state") == {"episode_id": None, "step_count": 0}
        first = await client.send("reset", {"task_id": "second", "episode_id": "mine"})
        assert first["observation"]["text"] == "Say two."
        assert first["observation"]["input"] == [{"role": "user", "content": "Say two."}]
        assert (first["reward"], first["done"]) == (None, False)
        listed = (await client.send("step", {"type": "list_tools"}))["observation"]["tools"]
        assert [one["name"] for one in listed][-1] == "answer"
        assert {"note", "refuse"} < {one["name"] for one in listed}
        noted = await client.send("step", call("note", text="hello"))
        assert noted["observation"]["result"]["data"] == "1"
        assert (noted["reward"], noted["done"]) == (None, False)
        last = await client.send("step", answer("two"))
        assert (last["reward"], last["done"]) == (1.0, True)
        assert last["metadata"]["verification"]["components"] == {"notes": 1.0}
        state = await client.send("state")
        assert state == {
            "episode_id": "mine", "step_count": 2, "task_id": "second", "done": True, "reward": 1.0,
        }  # fmt: skip
        code, message = await refused(client, "step", answer("two"))
        assert (code, "SESSION_STATE" in message) == ("EXECUTION_ERROR", True)
        await client.send("reset", {"seed": 0})
        assert (await client.send("step", answer("two")))["reward"] == 0.0


async def test_a_tool_that_ends_the_episode_brings_the_reward() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset", {"task_id": "first"})
        await client.send("step", call("note", text="one"))
        last = await client.send("step", call("leave"))
        assert (last["reward"], last["done"]) == (1.0, True)
        assert last["observation"]["result"]["data"] == "bye"


async def test_the_answer_is_a_tool_too() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset", {"task_id": "first"})
        wrong = await client.send("step", call("answer", text="one"))
        assert wrong["observation"]["error"]["error_type"] == "invalid_args"
        assert (await client.send("step", call("answer", answer="one")))["reward"] == 1.0


async def test_rewards_of_tool_calls_add_up() -> None:
    async with offered(Paid(), ["openenv"]) as desk, desk.openenv() as client:
        await client.send("reset")
        first = await client.send("step", call("dig"))
        assert (first["reward"], first["done"]) == (0.5, False)
        last = await client.send("step", call("dig"))
        assert (last["reward"], last["done"]) == (1.5, True)
        assert (await client.send("state"))["reward"] == 2.0


async def test_rewards_of_turns_add_up() -> None:
    async with offered(Talk(), ["openenv"]) as desk, desk.openenv() as client:
        first = await client.send("reset")
        assert first["observation"]["text"] == "Say one.\nBegin."
        turn = await client.send("step", answer("a"))
        assert (turn["observation"]["text"], turn["reward"]) == ("That was 1.", 0.5)
        last = await client.send("step", answer("b"))
        assert (last["reward"], last["done"]) == (1.5, True)
        assert (await client.send("state"))["reward"] == 2.0


async def test_which_task() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        right: list[tuple[dict[str, Any], str]] = [
            ({}, "Say one."),
            ({}, "Say two."),
            ({"seed": 4}, "Say two."),
            ({"episode_id": "first"}, "Say one."),
            ({"split": "examples", "index": 1}, "Say two."),
            ({"task": {"task_id": "first"}}, "Say one."),
            ({"task": {"prompt": "Anything.", "wanted": "x"}}, "Anything."),
        ]
        for data, prompt in right:
            assert (await client.send("reset", data))["observation"]["text"] == prompt, data
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"task_id": "none"}, "task does not name a task"),
            ({"split": "other", "index": 0}, "The splits are: examples"),
            ({"split": "examples", "index": 9}, "the number of tasks in the split 'examples', 3"),
            ({"seed": -1}, "seed must"),
            ({"seed": "x"}, "seed must"),
            ({"episode_id": "x" * 300}, "longer than 255"),
            ({"task": {"responses_create_params": 3}}, "TASK_INVALID"),
        ]
        for data, part in wrong:
            code, message = await refused(client, "reset", data)
            assert code == "VALIDATION_ERROR"
            assert part in message


async def test_what_goes_wrong_is_said_and_the_socket_stays() -> None:
    async with offered(Office()) as desk, desk.http.ws_connect(f"{desk.url}/ws") as socket:
        client = OpenEnvClient(socket)
        await socket.send_str("{")
        assert "INVALID_JSON" in (await socket.receive()).data
        assert (await refused(client, "fly"))[0] == "UNKNOWN_TYPE"
        code, message = await refused(client, "step", call("note", text="x"))
        assert (code, "Send reset first" in message) == ("EXECUTION_ERROR", True)
        await client.send("reset")
        assert (await refused(client, "step", {"type": "fly"}))[0] == "VALIDATION_ERROR"
        unknown = await client.send("step", call("fly"))
        assert unknown["observation"]["error"]["error_type"] == "tool_not_found"
        wrong = await client.send("step", call("note", number=1))
        assert wrong["observation"]["error"]["error_type"] == "invalid_args"
        no = await client.send("step", call("refuse"))
        assert no["observation"]["result"]["is_error"] is True
        assert no["observation"]["result"]["data"] == "Not on a Sunday."


async def test_a_fault_leaves_the_episode_without_a_reward() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset", {"task_id": "first"})
        code, message = await refused(client, "step", call("break_down"))
        assert code == "EXECUTION_ERROR"
        assert "ENVIRONMENT_FAULT" in message
        assert "secret" not in message
        again = await refused(client, "step", answer("one"))
        assert again == (code, message)
        assert (await client.send("state"))["reward"] is None


async def test_not_judged_is_not_zero() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset", {"task_id": "unjudged"})
        code, message = await refused(client, "step", answer("x"))
        assert code == "EXECUTION_ERROR"
        assert "returned no reward: the verification is PENDING" in message


async def test_images_and_long_answers() -> None:
    async with offered(Office()) as desk, desk.openenv() as client:
        await client.send("reset")
        content = (await client.send("step", call("picture")))["observation"]["result"]["content"]
        assert content == [
            {"type": "text", "text": "look"},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        ]
        long = await client.send("step", call("long"))
        assert long["observation"]["result"]["data"] == "a b " * 5_000


async def test_two_clients_at_once() -> None:
    async with (
        offered(Office()) as desk,
        desk.openenv() as one,
        desk.openenv() as other,
    ):
        await one.send("reset", {"task_id": "first"})
        await other.send("reset", {"task_id": "first"})
        await one.send("step", call("note", text="one"))
        assert desk.open_sessions == 2
        assert (await one.send("step", answer("x")))["reward"] == 1.0
        assert (await other.send("step", answer("x")))["reward"] == 0.0


async def test_a_client_that_goes_ends_its_session_and_what_runs_in_it() -> None:
    office = Office()
    async with offered(office) as desk:
        async with desk.http.ws_connect(f"{desk.url}/ws") as socket:
            await OpenEnvClient(socket).send("reset")
            assert desk.open_sessions == 1
            await socket.send_json({"type": "step", "data": call("wait")})
            await office.waiting.wait()
        await office.gone.wait()
        assert desk.open_sessions == 0


async def test_no_more_sessions_than_allowed() -> None:
    async with (
        offered(Office(), session_limit=1) as desk,
        desk.openenv() as one,
        desk.openenv() as other,
    ):
        await one.send("reset")
        assert (await refused(other, "reset"))[0] == "CAPACITY_REACHED"
        await one.send("reset")  # the one before ends first
        assert desk.open_sessions == 1


async def test_a_message_that_is_too_large_ends_the_socket() -> None:
    async with offered(Office(), told={"body_bytes": 2_000}) as desk:
        async with desk.http.ws_connect(f"{desk.url}/ws") as socket:
            await socket.send_str("x" * 3_000)
            assert (await socket.receive()).type.name in ("CLOSE", "CLOSED", "CLOSING")
            assert socket.close_code == 1009
        async with desk.http.post(f"{desk.url}/reset", data=b"x" * 3_000) as reply:
            assert reply.status == 413


async def test_an_idle_socket_is_closed() -> None:
    async with (
        offered(Office(), session_idle_s=1) as desk,
        desk.http.ws_connect(f"{desk.url}/ws") as socket,
    ):
        told = await socket.receive_json()
        assert told["data"]["code"] == "SESSION_ERROR"
        assert "no message arrived for 1 s" in told["data"]["message"]
        assert (await socket.receive()).type.name in ("CLOSE", "CLOSING", "CLOSED")


async def _post(desk: Offered, path: str, body: Any) -> tuple[int, Any]:
    async with desk.http.post(f"{desk.url}{path}", json=body) as reply:
        return reply.status, await reply.json()


async def _get(desk: Offered, path: str) -> tuple[int, Any]:
    async with desk.http.get(f"{desk.url}{path}") as reply:
        return reply.status, await reply.json()


async def test_each_http_call_has_an_environment_of_its_own() -> None:
    async with offered(Office()) as desk:
        status, first = await _post(desk, "/reset", {"task_id": "second"})
        assert (status, first["observation"]["text"]) == (200, "Say two.")
        body = {"action": answer("two"), "task_id": "second"}
        status, last = await _post(desk, "/step", body)
        assert (status, last["reward"], last["done"]) == (200, 1.0, True)
        assert await _get(desk, "/state") == (200, {"episode_id": None, "step_count": 0})
        assert desk.open_sessions == 0
        status, said = await _post(desk, "/step", {"action": {"type": "fly"}})
        assert (status, said["reason"]) == (422, "FIELD_INVALID")


async def test_what_the_server_says_of_itself() -> None:
    async with offered(Office()) as desk:
        assert await _get(desk, "/health") == (200, {"status": "healthy"})
        about = (await _get(desk, "/metadata"))[1]
        assert (about["name"], about["description"], about["version"]) == (
            "e", "Keeps notes.", "7",
        )  # fmt: skip
        schema = (await _get(desk, "/schema"))[1]
        kinds = [one["properties"]["type"]["const"] for one in schema["action"]["oneOf"]]
        assert kinds[:2] == ["list_tools", "answer"]
        note = next(
            one["properties"]["arguments"]
            for one in schema["action"]["oneOf"]
            if one["properties"].get("tool_name") == {"const": "note"}
        )
        assert note["required"] == ["text"]
        assert "/ws" in (await _get(desk, "/openapi.json"))[1]["paths"]
        status, listed = await _post(desk, "/e/num_tasks", {"split": "examples"})
        assert (status, listed) == (200, {"num_tasks": 3})


async def _rpc(desk: Offered, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await _post(desk, "/mcp", body))[1]


async def test_tools_over_json_rpc_in_the_session_of_a_socket() -> None:
    async with offered(Office()) as desk:
        made = (await _rpc(desk, "openenv/session/create"))["result"]["session_id"]
        async with desk.openenv(f"?session_id={made}") as client:
            async with desk.http.ws_connect(f"{desk.url}/ws?session_id={made}") as second:
                assert "already has a WebSocket" in (await second.receive()).data
            await client.send("reset", {"task_id": "first"})
            tools = (await _rpc(desk, "tools/list", session_id=made))["result"]["tools"]
            assert "note" in [one["name"] for one in tools]
            asked = {"name": "note", "arguments": {"text": "one"}, "session_id": made}
            assert (await _rpc(desk, "tools/call", **asked))["result"]["data"] == "1"
            told = await client.send("mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
            assert told["id"] == 2
            assert (await client.send("step", answer("x")))["reward"] == 1.0
            closing = await _rpc(desk, "openenv/session/close", session_id=made)
            assert closing["result"]["closing"] is True
        await desk.until_closed()
        assert (await _rpc(desk, "tools/list", session_id=made))["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32700),
        (b'{"id": 1, "method": "tools/list"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "fly"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": 3}', -32602),
    ],
)
async def test_json_rpc_errors(body: bytes, code: int) -> None:
    async with offered(Office()) as desk, desk.http.post(f"{desk.url}/mcp", data=body) as reply:
        assert (await reply.json())["error"]["code"] == code


async def test_sessions_without_a_socket_are_bounded() -> None:
    async with offered(Office(), session_limit=2) as desk:
        for _ in range(2):
            assert "result" in await _rpc(desk, "openenv/session/create")
        full = await _rpc(desk, "openenv/session/create")
        assert full["error"]["code"] == -32000
        assert full["error"]["data"] == {"active_sessions": 2, "max_sessions": 2}
