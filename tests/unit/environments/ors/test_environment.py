"""The ors environment against a server of the Open Reward Standard."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.ors import OrsEnvironment
from gymmesh_resource.environments.ors.events import EventReader
from gymmesh_resource.registry import example_tasks
from gymmesh_responses import loads, new_message, text_of
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.openenv.openenv_server import serving
from tests.unit.environments.ors.ors_server import OrsServer, output
from tests.unit.environments.waiting import until
from tests.unit.resource.served import Served, served, task

Reason = errors_pb2.ErrorReason
FAULT = Reason.ERROR_REASON_ENVIRONMENT_FAULT
OK = rollout_pb2.TOOL_OUTCOME_OK
ERROR = rollout_pb2.TOOL_OUTCOME_TOOL_ERROR
FIRST = {"index": 0}


@asynccontextmanager
async def bridged(server: OrsServer, **config: Any) -> AsyncIterator[Served]:
    options = {"tasks": 0} | config.pop("options", {})
    async with (
        serving(server.app) as url,
        served(OrsEnvironment(url=url, **options), **config) as mesh,
    ):
        yield mesh


async def fails(awaited: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await awaited
    return caught.value


def answered(text: str) -> list[responses_pb2.Item]:
    return [new_message("assistant", text)]


# ---- the course of an episode --------------------------------------------------------------------
async def test_an_episode_from_prompt_to_the_sum_of_its_rewards() -> None:
    server = OrsServer()
    async with bridged(server) as mesh:
        opened = await mesh.create(task(ors=FIRST))
        session = opened.session_id
        assert [tool.function.name for tool in opened.tools] == ["hint", "submit"]
        assert [text_of(item) for item in opened.items] == ["1 + 1?"]
        hint = await mesh.call(session, "hint")
        bad = await mesh.call(session, "submit", {"anser": "2"})
        right = await mesh.call(session, "submit", {"answer": "2"})
        late = await mesh.call(session, "submit", {"answer": "2"})
        verdict = await mesh.verify(session)
        await mesh.close(session)
    assert (hint.text, hint.reward, hint.done) == (b"no\nhints", -0.25, False)
    assert (bad.outcome, bad.HasField("reward")) == (ERROR, False)
    assert b"Field required" in bad.text
    assert (right.text, right.reward, right.done, right.outcome) == (b"Correct!", 1.0, True, OK)
    assert (late.outcome, len(server.calls)) == (ERROR, 3)
    assert verdict.reward == 0.75
    evidence = loads(verdict.evidence_json)
    assert (evidence["rewards"], evidence["finished"]) == ([-0.25, 1.0], True)
    assert (server.sessions, len(server.deleted)) == ({}, 1)


@pytest.mark.parametrize(("rule", "expected"), [("last", 1.0), ("max", 1.0), ("sum", 0.75)])
async def test_the_rule_makes_the_reward_of_the_calls_rewards(rule: str, expected: float) -> None:
    async with bridged(OrsServer(), options={"reward": rule}) as mesh:
        session = (await mesh.create(task(ors=FIRST))).session_id
        await mesh.call(session, "hint")
        await mesh.call(session, "submit", {"answer": "2"})
        assert (await mesh.verify(session)).reward == expected


async def test_a_task_may_be_in_the_row_itself() -> None:
    async with bridged(OrsServer()) as mesh:
        row = {"task": {"question": "Why?", "answer": "so"}}
        opened = await mesh.create(task(ors=row))
        assert text_of(opened.items[0]) == "Why?"
        assert (await mesh.call(opened.session_id, "submit", {"answer": "so"})).reward == 1.0


async def test_the_terminal_tool_is_given_the_last_message_and_is_called_once() -> None:
    server = OrsServer(terminal=True)
    async with bridged(server) as mesh:
        opened = await mesh.create(task(ors=FIRST))
        assert [tool.function.name for tool in opened.tools] == ["hint"]
        session = opened.session_id
        refused = await mesh.call(session, "submit", {"answer": "2"})
        assert refused.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL
        verdict = await mesh.verify(session, transcript=answered("2"))
        again = await fails(mesh.verify(session, transcript=answered("2")))
    assert verdict.reward == 1.0
    assert server.calls == [("submit", {"answer": "2"})]
    assert again.reason == Reason.ERROR_REASON_VERIFIER_FAULT


async def test_without_a_last_message_the_terminal_tool_is_not_called() -> None:
    server = OrsServer(terminal=True)
    async with bridged(server) as mesh:
        session = (await mesh.create(task(ors=FIRST))).session_id
        verdict = await mesh.verify(session)
    assert (verdict.status, server.calls) == (rollout_pb2.VERIFICATION_STATUS_SKIPPED, [])


async def test_the_sizes_of_splits_are_the_servers(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(OrsServer().app) as url:
        environment = OrsEnvironment(url=url)
        rows = await asyncio.to_thread(example_tasks, environment, "o")
        assert [loads(row.payload_json)["ors"]["index"] for row in rows] == [0, 1, 2, 3, 4]
        with caplog.at_level(logging.WARNING):
            none = OrsEnvironment(url=url, environment="sums", split="missing")
            assert await asyncio.to_thread(example_tasks, none, "o") == []
    assert "did not list the tasks of the split 'missing'" in caplog.text


async def test_a_session_waits_for_its_setup() -> None:
    async with bridged(OrsServer(starting=2)) as mesh:
        opened = await mesh.create(task(ors=FIRST))
    assert text_of(opened.items[0]) == "1 + 1?"


@pytest.mark.parametrize("wants", ["body", "header"])
async def test_keys_and_secrets_come_from_variables(
    wants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "k1")
    monkeypatch.setenv("THE_SECRET", "s1")
    server = OrsServer(wants=wants)
    options = {"key_variable": "THE_KEY", "secrets": {"search": "THE_SECRET"}}
    async with bridged(server, options=options) as mesh:
        await mesh.create(task(ors=FIRST))
    assert server.keys == {"k1"}
    if wants == "body":
        assert server.secrets == [{"search": "s1"}]
    else:
        assert loads(base64.b64decode(server.secrets[0])) == {"search": {"value": "s1"}}
    with pytest.raises(ValueError, match=r"secrets\.search: the environment variable 'MISSING'"):
        OrsEnvironment(url="http://x", secrets={"search": "MISSING"})


async def test_a_session_says_that_it_lives() -> None:
    server = OrsServer()
    async with bridged(server, options={"ping_s": 0.02}) as mesh:
        session = (await mesh.create(task(ors=FIRST))).session_id
        await until(lambda: server.pings >= 3)
        server.forgets = True
        seen = server.pings
        await until(lambda: server.pings > seen)
        error = await fails(_calls_until_it_fails(mesh, session))
    assert (error.reason, "ended the session" in error.message) == (FAULT, True)


async def _calls_until_it_fails(mesh: Served, session: str) -> None:
    while True:
        await mesh.call(session, "hint")


async def test_sessions_side_by_side() -> None:
    async with bridged(OrsServer()) as mesh:
        one = (await mesh.create(task(ors={"index": 1}))).session_id
        other = (await mesh.create(task(ors={"index": 2, "split": "train"}))).session_id
        answers = await asyncio.gather(
            mesh.call(one, "submit", {"answer": "4"}), mesh.call(other, "submit", {"answer": "4"})
        )
    assert [answer.reward for answer in answers] == [1.0, 0.0]


# ---- what is wrong -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "ors"),
        ({"ors": {}}, "ors.index"),
        ({"ors": {"index": -1}}, "ors.index"),
        ({"ors": {"index": 0, "split": 3}}, "ors.split"),
        ({"ors": {"task": 3}}, "ors.task"),
        ({"ors": {"task": {}, "index": 0}}, "ors.task"),
        ({"ors": {"indx": 0}}, "ors.indx"),
        ({"ors": {"index": 99}}, "ors"),
    ],
)
async def test_a_row_that_cannot_be_meant_is_refused(row: Any, field: str) -> None:
    async with bridged(OrsServer()) as mesh:
        error = await fails(mesh.create(task(**row)))
    assert (error.reason, error.metadata["field"]) == (Reason.ERROR_REASON_TASK_INVALID, field)


def ended(document: Any) -> bytes:
    import json

    return f"event: end\ndata: {json.dumps(document)}\n\n".encode()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "ended without an answer"),
        (b"garbage", "ended without an answer"),
        (b"event: end\ndata: garbage\n\n", "not JSON"),
        (b'event: end\ndata: {"ok": true}\n\n', "has no output"),
        (b"event: end\ndata: []\n\n", "whether the call succeeded"),
        (b"event: error\ndata: division by zero\n\n", "raised: division by zero"),
        (b"event: end\ndata: " + b"[" * 100_000 + b"\n\n", "more than 65536 bytes"),
        (b": ping\n" * 20_000, "more than 65536 bytes"),
        (ended(output(reward="1")), "its reward is '1'"),
        (ended(output(reward=float("nan"))), "not JSON"),
        (ended(output(finished="yes")), "its `finished` is 'yes'"),
        (ended(output() | {"output": {"blocks": 3}}), "blocks are not a list"),
        (ended(output() | {"output": {"blocks": [3]}}), "not an object"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_no_answer_is_a_fault(raw: bytes, said: str) -> None:
    server = OrsServer()
    server.raw = raw
    async with bridged(server, options={"max_answer_bytes": 65_536}) as mesh:
        error = await fails(mesh.call((await mesh.create(task(ors=FIRST))).session_id, "hint"))
    assert (error.reason, error.metadata["stage"]) == (FAULT, "call")
    assert said in error.message


@pytest.mark.parametrize("status", [400, 404, 410, 500, 503, 308])
async def test_an_http_error_of_a_call_is_a_fault(status: int) -> None:
    server = OrsServer()
    server.status = status
    async with bridged(server) as mesh:
        error = await fails(mesh.call((await mesh.create(task(ors=FIRST))).session_id, "hint"))
    assert (error.reason, f"answered {status}" in error.message) == (FAULT, True)


async def test_a_stream_that_breaks_off_is_a_fault_and_its_call_is_not_made_again() -> None:
    server = OrsServer()
    server.breaks = True
    async with bridged(server) as mesh:
        error = await fails(mesh.call((await mesh.create(task(ors=FIRST))).session_id, "hint"))
    assert (error.reason, len(server.calls)) == (FAULT, 1)


async def test_a_server_that_does_not_answer_is_a_time_out() -> None:
    server = OrsServer()
    server.hangs = True
    async with bridged(server, tool_timeout_s=0.3) as mesh:
        error = await fails(mesh.call((await mesh.create(task(ors=FIRST))).session_id, "hint"))
    assert error.reason == Reason.ERROR_REASON_TOOL_TIMEOUT


async def test_no_server_is_a_fault() -> None:
    async with serving(OrsServer().app) as url:
        pass
    async with served(OrsEnvironment(url=url, tasks=0)) as mesh:
        assert (await fails(mesh.create(task(ors=FIRST)))).reason == FAULT


async def test_a_terminal_tool_that_fails_is_a_fault_of_the_verifier() -> None:
    server = OrsServer(terminal=True)
    async with bridged(server) as mesh:
        session = (await mesh.create(task(ors=FIRST))).session_id
        server.status = 500
        error = await fails(mesh.verify(session, transcript=answered("2")))
    assert error.reason == Reason.ERROR_REASON_VERIFIER_FAULT


# ---- events --------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    body = (
        b"\xef\xbb\xbf: hello\r\nevent: a\r\ndata:  two\r\ndata: lines\r\n\r\n"
        b"event: b\ndata: x\n\ndata\n\nevent:c\rdata:y\r\r: end\n\n"
    )
    reader = EventReader()
    found = [
        event for at in range(0, len(body), size) for event in reader.feed(body[at : at + size])
    ]
    assert found == [("a", " two\nlines"), ("b", "x"), ("message", ""), ("c", "y")]
