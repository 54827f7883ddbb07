"""Requests are read as the files of cases say; equal ones have equal digests."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gymmesh_agent.gateway.dialects import DIALECTS
from gymmesh_agent.gateway.minted import Minted, answers_minted, minted_of
from gymmesh_agent.gateway.request import GatewayRequest, Refusal
from gymmesh_responses import items_to_list
from tests.unit.gateway_dialects.requests import ask, cases, read

Json = dict[str, Any]

CASES = [
    pytest.param(case, id=f"{dialect}: {case['name']}")
    for dialect in DIALECTS
    for case in cases(f"read_{dialect}.yaml")
]


@pytest.mark.parametrize("case", CASES)
def test_cases(case: Json) -> None:
    request = ask(case["path"], case["body"], query=case.get("query"), headers=case.get("headers"))
    if "refused" in case:
        assert isinstance(request, Refusal)
        assert case["refused"] in request.message
        return
    assert isinstance(request, GatewayRequest), request
    assert list(request.left_out) == case.get("left_out", [])
    found: Json = {
        "items": items_to_list(request.items),
        "tools": list(request.tools),
        "params": request.params,
        "instructions": request.instructions,
        "tool_names": {key: list(value) for key, value in request.tool_names.items()},
        "model": request.model,
        "stream": request.stream,
        "kind": request.kind.value,
        "reply": structs.asdict(request.reply),
        "minted": [_named(minted_of(item)) for item in request.items],
        "answers": [_named(answers_minted(item)) for item in request.items],
    }
    for key in found.keys() & case.keys():
        assert found[key] == case[key], key
    hints = structs.asdict(request.hints)
    for key, value in case.get("hints", {}).items():
        assert hints[key] == value, key


def _named(minted: Minted | None) -> list[Any] | None:
    return None if minted is None else [minted.call_id, minted.output]


def test_what_does_not_change_the_answer_does_not_change_the_digest() -> None:
    one = {
        "model": "m",
        "max_tokens": 5,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=1"},
            {"type": "text", "text": "s"},
        ],
        "messages": [{"role": "user", "content": "hi"}],
    }
    other = {
        "model": "m",
        "max_tokens": 5,
        "stream": True,
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cch=2"},
            {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }
    assert read("anthropic", one).digest == read("anthropic", other).digest


@pytest.mark.parametrize("change", ["model", "max_tokens", "messages", "tools", "temperature"])
def test_what_changes_the_answer_changes_the_digest(change: str) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    changed: Json = {
        **body,
        change: {
            "model": "n",
            "max_tokens": 6,
            "messages": [{"role": "user", "content": "hj"}],
            "tools": [{"name": "f", "input_schema": {}}],
            "temperature": 0.1,
        }[change],
    }
    assert read("anthropic", body).digest != read("anthropic", changed).digest


def test_digests_of_dialects_differ() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert read("anthropic", body).digest != read("chat", body).digest


def test_a_whole_answer_and_a_stream_are_one_request() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert read("chat", body).digest == read("chat", {**body, "stream": True}).digest
