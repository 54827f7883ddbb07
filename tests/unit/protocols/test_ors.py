"""ORS: sessions by header, tools over server-sent events, rewards in their answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gymmesh_resource.protocols.ors.streams import result_events
from tests.unit.protocols.clients import ServerSaid, events, result_of
from tests.unit.protocols.offered import PIXEL, Offered, Office, Talk, offered


async def created(desk: Offered, **body: Any) -> str:
    sid = await desk.ors.new_id()
    async with desk.ors.request("POST", "/create", sid, body) as reply:
        assert (reply.status, await reply.json()) == (200, {"sid": sid})
    return sid


async def asked(
    desk: Offered, method: str, path: str, sid: str = "", body: Any = None
) -> tuple[int, Any]:
    async with desk.ors.request(method, path, sid, body) as reply:
        return reply.status, await reply.json()


async def test_tasks_by_split_and_index() -> None:
    async with offered(Office(), ["ors"]) as desk:
        assert (await asked(desk, "GET", "/list_environments"))[1] == ["e"]
        splits = (await asked(desk, "GET", "/E/splits"))[1]
        assert splits == [{"name": "examples", "type": "validation"}]
        body = {"split": "examples"}
        assert (await asked(desk, "POST", "/num_tasks", body=body))[1] == {"num_tasks": 3}
        listed = (await asked(desk, "POST", "/e/tasks", body=body))[1]["tasks"]
        assert listed[1] == {"split": "examples", "index": 1, "task_id": "second"}
        one = await asked(desk, "POST", "/e/task", body={"split": "examples", "index": -1})
        assert one[1]["task"]["index"] == 2
        part = await asked(desk, "POST", "/e/task_range", body={**body, "start": -2})
        assert [task["index"] for task in part[1]["tasks"]] == [1, 2]
        for body_, status in (({"split": "x"}, 422), ({"split": 3}, 422)):
            assert (await asked(desk, "POST", "/e/num_tasks", body=body_))[0] == status
        beyond = {"split": "examples", "index": 3}
        assert (await asked(desk, "POST", "/e/task", body=beyond))[0] == 422
        assert (await asked(desk, "GET", "/other/splits"))[0] == 404


async def test_no_answer_of_a_task_leaves_the_server() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await created(desk, split="examples", index=0)
        for method, path in (("POST", "/e/tasks"), ("GET", "/e/prompt"), ("GET", "/e/messages")):
            body = {"split": "examples"} if method == "POST" else None
            shown = await asked(desk, method, path, sid, body)
            assert "wanted" not in json.dumps(shown[1])


async def test_an_episode() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await created(desk, split="examples", index=1, env_name="e")
        assert (await asked(desk, "POST", "/ping", sid))[1] == {"status": "ok"}
        prompt = (await asked(desk, "GET", "/e/prompt", sid))[1]
        assert prompt == [{"type": "text", "text": "Say two.", "detail": {"role": "user"}}]
        messages = (await asked(desk, "GET", "/e/messages", sid))[1]
        assert [one["role"] for one in messages] == ["user"]
        listed = (await asked(desk, "GET", "/e/task_tools", sid))[1]
        assert listed["tools"][-1]["name"] == "answer"
        assert listed["terminal_tool"]["arg"] == "answer"
        noted = await desk.ors.call(sid, "note", {"text": "x"})
        assert noted["output"] == {
            "blocks": [{"type": "text", "text": "1", "detail": None}],
            "metadata": None, "reward": None, "finished": False,
        }  # fmt: skip
        last = (await desk.ors.call(sid, "answer", {"answer": "two"}))["output"]
        assert (last["reward"], last["finished"]) == (1.0, True)
        assert last["metadata"]["verification"]["components"] == {"notes": 1.0}
        over = await desk.ors.call(sid, "note", {"text": "x"})
        assert (over["ok"], over["reason"]) == (False, "episode_finished")
        assert (await asked(desk, "POST", "/delete", sid))[0] == 200
        assert desk.open_sessions == 0
        assert (await asked(desk, "POST", "/ping", sid))[0] == 404


async def test_calls_that_are_wrong_and_tools_that_refuse() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await created(desk, task_spec={"task_id": "first"})
        for name, arguments, reason in (
            ("fly", {}, "not_found"),
            ("note", {"number": 1}, "input_validation"),
            ("answer", {"text": "one"}, "input_validation"),
        ):
            wrong = await desk.ors.call(sid, name, arguments)
            assert (wrong["ok"], wrong["reason"]) == (False, reason)
        no = (await desk.ors.call(sid, "refuse", {}))["output"]
        assert no["blocks"][0]["text"] == "Not on a Sunday."
        assert no["metadata"] == {"is_error": True}
        image = (await desk.ors.call(sid, "picture", {}))["output"]["blocks"][1]
        assert (image["type"], image["data"], image["mimeType"]) == ("image", PIXEL, "image/png")
        long = (await desk.ors.call(sid, "long", {}))["output"]["blocks"][0]["text"]
        assert long == "a b " * 5_000


async def test_a_fault_is_an_error_of_the_stream_and_stays_one() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await created(desk, task_spec={"task_id": "first"})
        for name, arguments in (("break_down", {}), ("answer", {"answer": "one"})):
            with pytest.raises(ServerSaid, match="ENVIRONMENT_FAULT") as raised:
                await desk.ors.call(sid, name, arguments)
            assert "secret" not in str(raised.value)
        unjudged = await created(desk, task_spec={"task_id": "unjudged"})
        with pytest.raises(ServerSaid, match=r"VERIFIER_FAULT: .*PENDING"):
            await desk.ors.call(unjudged, "answer", {"answer": "x"})


async def test_turns() -> None:
    async with offered(Talk(), ["ors"]) as desk:
        sid = await created(desk, split="examples", index=0)
        listed = (await asked(desk, "GET", "/task_tools", sid))[1]
        assert listed["terminal_tool"] is None  # a message does not end it
        turn = (await desk.ors.call(sid, "answer", {"answer": "a"}))["output"]
        assert (turn["reward"], turn["finished"]) == (0.5, False)
        assert turn["blocks"][0]["text"] == "That was 1."
        last = (await desk.ors.call(sid, "answer", {"answer": "b"}))["output"]
        assert (last["reward"], last["finished"]) == (1.5, True)


async def test_a_call_goes_on_without_its_stream() -> None:
    office = Office()
    async with offered(office, ["ors"], tool_timeout_s=30) as desk:
        sid = await created(desk, split="examples", index=0)
        body = {"name": "wait", "input": {}}
        reply = await desk.http.post(f"{desk.url}/e/call", json=body, headers={"X-Session-ID": sid})
        first = (await reply.content.readline()) + (await reply.content.readline())
        call_id = dict(events(f"{first.decode()}\n"))["task_id"]
        await office.waiting.wait()
        reply.close()
        ended = await asked(desk, "POST", "/delete", sid)
        assert ended[0] == 200
        assert call_id
        await desk.until_closed()


async def test_a_stream_can_be_taken_up_again() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await created(desk, task_spec={"task_id": "first"})
        body: dict[str, Any] = {"name": "note", "input": {"text": "x"}}
        async with desk.ors.request("POST", "/e/call", sid, body) as reply:
            text = await reply.text()
        call_id = dict(events(text))["task_id"]
        async with desk.ors.request("POST", "/e/call", sid, {**body, "task_id": call_id}) as reply:
            again = result_of(await reply.text())
        assert again == result_of(text)
        assert again["output"]["blocks"][0]["text"] == "1"  # it was not called twice
        async with desk.ors.request("POST", "/e/call", sid, {**body, "task_id": "x"}) as reply:
            with pytest.raises(ServerSaid, match="unknown task_id"):
                result_of(await reply.text())


async def test_sessions_that_are_none() -> None:
    async with offered(Office(), ["ors"]) as desk:
        sid = await desk.ors.new_id()
        assert (await asked(desk, "POST", "/create", "", {}))[0] == 400
        assert (await asked(desk, "POST", "/create", "made-up", {}))[0] == 404
        assert (await asked(desk, "POST", "/ping", sid))[0] == 404
        assert (await asked(desk, "POST", "/create", sid, {"env_name": "other"}))[0] == 404
        for body in ({}, {"split": "x", "index": 0}, {"task_spec": {"task_id": "none"}}):
            assert (await asked(desk, "POST", "/create", sid, body))[0] == 422
        toolset = {"split": "examples", "index": 0, "toolset_name": "claude-code"}
        assert (await asked(desk, "POST", "/create", sid, toolset))[0] == 422
        await asked(desk, "POST", "/create", sid, {"split": "examples", "index": 0})
        again = await asked(desk, "POST", "/create", sid, {"split": "examples", "index": 0})
        assert again == (400, {"detail": "Session already exists"})


async def test_a_session_that_was_idle_is_gone() -> None:
    async with offered(Office(), ["ors"], session_idle_s=1) as desk:
        sid = await created(desk, split="examples", index=0)
        await desk.until_closed()
        assert (await asked(desk, "POST", "/ping", sid))[0] == 410


async def test_two_clients_at_once() -> None:
    async with offered(Office(), ["ors"]) as desk:
        one, other = await asyncio.gather(
            created(desk, task_spec={"task_id": "first"}),
            created(desk, task_spec={"task_id": "first"}),
        )
        await desk.ors.call(one, "note", {"text": "one"})
        rewards = await asyncio.gather(
            desk.ors.call(one, "answer", {"answer": "x"}),
            desk.ors.call(other, "answer", {"answer": "x"}),
        )
        assert [one["output"]["reward"] for one in rewards] == [1.0, 0.0]


@pytest.mark.parametrize("text", ["", "x", " " * 9_000, "ab " * 4_000, "é\u2028\n" * 3_000])
def test_results_survive_being_cut_into_chunks(text: str) -> None:
    pieces = [piece.decode() for piece in result_events({"text": text})]
    assert [piece.split("\n")[0] for piece in pieces] == [
        *["event: chunk"] * (len(pieces) - 1),
        "event: end",
    ]
    # As clients read them: what follows the field's name, without spaces at its beginning.
    data = [piece.split("\n")[1].split(":", 1)[1].lstrip() for piece in pieces]
    assert json.loads("".join(data)) == {"text": text}
