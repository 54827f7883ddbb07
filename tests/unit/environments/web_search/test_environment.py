"""Searching, fetching and judging through the service; hosted search against a local server."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.environments.web_search import WebSearchEnvironment
from gymmesh_resource.environments.web_search.hosted import HostedSearchOptions
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import make_environment
from gymmesh_responses import function_call_output, item_from_json, new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.llm_judge.judges import in_turn
from tests.unit.resource.served import Served, served, task

USE = "gymmesh_resource.environments.web_search:WebSearchEnvironment"
ROW: dict[str, Any] = {"expected_answer": "Torsund", "relevant_documents": ["ada-lindqvist"]}


async def _tool(mesh: Served, name: str, **arguments: Any) -> Any:
    session = await mesh.create(task(**ROW))
    answer = await mesh.call(session.session_id, name, arguments)
    await mesh.close(session.session_id)
    text = answer.text.decode()
    return json.loads(text) if text.startswith("{") else text


def _called(name: str, output: Any, number: int = 1) -> list[responses_pb2.Item]:
    call = {"type": "function_call", "name": name, "arguments": "{}", "call_id": f"c{number}"}
    return [item_from_json(call), function_call_output(f"c{number}", json.dumps(output))]


async def _verdict(
    mesh: Served, answer: str, *before: responses_pb2.Item, **row: Any
) -> rollout_pb2.Verification:
    transcript = [*before, new_message("assistant", answer)]
    return await mesh.verify(of=task(**(row or ROW)), transcript=transcript)


async def test_search_then_fetch_in_parts() -> None:
    async with served(WebSearchEnvironment(page_chars=200)) as mesh:
        found = await _tool(mesh, "search", query="first keeper born", limit=2)
        assert found["results"][0]["id"] == "ada-lindqvist"
        assert len(found["results"]) == 2
        page = await _tool(mesh, "fetch", url_or_id="https://docs.example/ada-lindqvist")
        rest = await _tool(mesh, "fetch", url_or_id="ada-lindqvist", offset=page["next_offset"])
    assert page["id"] == "ada-lindqvist"
    assert len(page["text"]) == page["next_offset"] == 200
    assert rest["next_offset"] is None
    assert len(page["text"] + rest["text"]) == rest["total_characters"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("search", {"query": " "}, "empty"),
        ("search", {"query": "x", "limit": 0}, "limit"),
        ("search", {"query": "x", "limit": 1_000}, "limit"),
        ("search", {"limit": 1}, "query"),
        ("fetch", {"url_or_id": "https://elsewhere.example/"}, "no such document"),
        ("fetch", {"url_or_id": "/etc/passwd"}, "no such document"),
        ("fetch", {"url_or_id": "file:///etc/passwd"}, "no such document"),
        ("fetch", {"url_or_id": "torsund", "offset": -1}, "offset"),
        ("fetch", {"url_or_id": "torsund", "offset": 10_000}, "ends at character"),
    ],
)
async def test_mistakes_are_told_to_the_model(
    name: str, arguments: dict[str, Any], says: str
) -> None:
    async with served(WebSearchEnvironment()) as mesh:
        session = await mesh.create(task(**ROW))
        answer = await mesh.call(session.session_id, name, arguments)
    assert says in answer.text.decode()


@pytest.mark.parametrize(
    ("options", "fetched", "answer", "reward"),
    [
        ({}, False, "Answer: Torsund", 1.0),
        ({}, True, "Answer: Marby", 0.0),
        ({"answer_weight": 0.8, "retrieval_weight": 0.2}, False, "Torsund", 0.8),
        ({"answer_weight": 0.8, "retrieval_weight": 0.2}, True, "Torsund", 1.0),
        ({"answer_weight": 0.8, "retrieval_weight": 0.2}, True, "Marby", 0.2),
        ({"answer_weight": 0.0, "retrieval_weight": 0.5}, True, "Marby", 1.0),
        ({"retrieval_weight": 1.0, "retrieval_needs": "seen"}, False, "Torsund", 1.0),
        ({"answer_match": "f1"}, False, "village of Torsund", 0.5),
    ],
)
async def test_rewards(options: dict[str, Any], fetched: bool, answer: str, reward: float) -> None:
    items = _called("search", {"results": [{"id": "ada-lindqvist"}]})
    if fetched:
        items += _called("fetch", {"id": "ada-lindqvist", "text": "…"}, 2)
    async with served(WebSearchEnvironment(**options)) as mesh:
        verification = await _verdict(mesh, answer, *items)
    assert verification.reward == pytest.approx(reward)
    evidence = json.loads(verification.evidence_json)
    assert evidence["relevant_fetched"] == (["ada-lindqvist"] if fetched else [])


async def test_a_model_cannot_claim_to_have_fetched() -> None:
    claim = json.dumps({"id": "ada-lindqvist", "text": "…"})
    items = [new_message("assistant", f"fetch: {claim}"), *_called("invented", {"id": "x"})]
    environment = WebSearchEnvironment(answer_weight=0.0, retrieval_weight=1.0)
    async with served(environment) as mesh:
        assert (await _verdict(mesh, claim, *items)).reward == 0.0


@pytest.mark.parametrize(
    ("answer", "reply", "reward", "asked"),
    [
        ("Torsund", "[[A!=B]]", 1.0, 0),
        ("the village by the Velle fjord", "[[A=B]]", 1.0, 1),
        ("Marby [[A=B]]", "[[A!=B]]", 0.0, 1),
        ("", "[[A=B]]", 0.0, 0),
    ],
)
async def test_a_judge_for_what_does_not_agree(
    answer: str, reply: str, reward: float, asked: int
) -> None:
    judge = in_turn(reply)
    environment = WebSearchEnvironment(judge=True)
    async with served(environment, model_services={"judge": judge}) as mesh:
        assert (await _verdict(mesh, answer)).reward == reward
    assert len(judge.seen) == asked


async def test_an_unreadable_judge_is_no_reward() -> None:
    environment = WebSearchEnvironment(judge=True)
    async with served(environment, model_services={"judge": in_turn("hm")}) as mesh:
        with pytest.raises(MeshError) as caught:
            await _verdict(mesh, "Marby")
    assert caught.value.reason == errors_pb2.ERROR_REASON_VERIFIER_FAULT


@pytest.mark.parametrize(
    ("row", "options", "field"),
    [
        ({}, {}, "expected_answer"),
        ({"expected_answer": ""}, {}, "expected_answer"),
        ({"expected_answer": []}, {}, "expected_answer"),
        ({"expected_answer": [{}]}, {}, "expected_answer"),
        ({"expected_answer": True}, {}, "expected_answer"),
        ({"expected_answer": "a", "relevant_documents": "b"}, {}, "relevant_documents"),
        ({"expected_answer": "a", "relevant_documents": [1]}, {}, "relevant_documents"),
        ({"expected_answer": "a"}, {"retrieval_weight": 0.5}, "relevant_documents"),
    ],
)
async def test_a_broken_row_is_refused_by_key(
    row: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    async with served(WebSearchEnvironment(**options)) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(**row))
    assert caught.value.reason == errors_pb2.ERROR_REASON_TASK_INVALID
    assert field in caught.value.message


async def test_a_missing_index_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no index"):
        async with served(WebSearchEnvironment(index=str(tmp_path / "none.db"))):
            pass


@asynccontextmanager
async def _service(answer: Callable[[web.Request], web.StreamResponse]) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return answer(request)

    app = web.Application()
    app.router.add_get("/search", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/search"
    finally:
        await runner.cleanup()


async def test_hosted_search() -> None:
    asked: list[web.Request] = []

    def answer(request: web.Request) -> web.Response:
        asked.append(request)
        hits = [{"name": "T  1", "link": "https://1", "about": "s" * 9_999}, {"link": ""}, 5]
        return web.json_response({"web": {"hits": [*hits, {"link": "https://2"}] * 9}})

    async with _service(answer) as url:
        options = {
            "url": url, "key": "SECRET", "key_header": "X-Key", "key_prefix": "",
            "parameters": {"lang": "en"}, "results": "web.hits", "title": "name",
            "address": "link", "snippet": "about",
        }  # fmt: skip
        environment = make_environment(USE, {"hosted": options})
        async with served(environment) as mesh:
            found = await _tool(mesh, "search", query="a&b=c", limit=3)
            page = await _tool(mesh, "fetch", url_or_id="https://1")
    assert dict(asked[0].query) == {"q": "a&b=c", "count": "3", "lang": "en"}
    assert asked[0].headers["X-Key"] == "SECRET"
    assert [hit["url"] for hit in found["results"]] == ["https://1", "https://2", "https://1"]
    assert found["results"][0]["title"] == "T 1"
    assert len(found["results"][0]["snippet"]) == 400
    assert "no such document" in page


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: web.Response(status=500, text="SECRET"),
        lambda _: web.Response(status=302, headers={"Location": "https://elsewhere.example"}),
        lambda _: web.Response(text="no JSON"),
        lambda _: web.json_response({"other": []}),
        lambda _: web.json_response([1]),
        lambda _: web.Response(body=b" " * 5_000_000),
    ],
    ids=["error", "redirect", "text", "no list", "array", "huge"],
)
async def test_a_failing_service_fails_the_tool_and_keeps_the_key(
    answer: Callable[[web.Request], web.Response], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with _service(answer) as url:
        options = HostedSearchOptions(url=f"{url}?token=SECRET", key="SECRET")
        assert "SECRET" not in repr(options)
        async with served(WebSearchEnvironment(hosted=options)) as mesh:
            session = await mesh.create(task(**ROW))
            with pytest.raises(MeshError) as caught:
                await mesh.call(session.session_id, "search", {"query": "x"})
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT
    assert "SECRET" not in caught.value.message
    logged = [line for line in caplog.text.splitlines() if "aiohttp.access" not in line]
    assert not [line for line in logged if "SECRET" in line and "gymmesh" in line]


async def test_an_unreachable_service_fails_the_tool() -> None:
    options = HostedSearchOptions(url="http://127.0.0.1:1/search?token=SECRET", timeout_s=5)
    async with served(WebSearchEnvironment(hosted=options)) as mesh:
        session = await mesh.create(task(**ROW))
        with pytest.raises(MeshError) as caught:
            await mesh.call(session.session_id, "search", {"query": "x"})
    assert caught.value.reason == errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hosted": {"url": "ftp://x"}}, "hosted.url"),
        ({"hosted": {"url": "https://x", "kee": "y"}}, "kee"),
        ({"answer_weight": 0}, "more than 0"),
        ({"answer_match": "fuzzy"}, "answer_match"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make_environment(USE, options)
