"""Whatever is sent, reading ends in a request or in a refusal of one sentence."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_agent.gateway.dialects import DIALECTS, dialect_for, route
from gymmesh_agent.gateway.request import (
    MAX_BODY_BYTES,
    MAX_ITEMS,
    GatewayRequest,
    Refusal,
    RefusalKind,
)
from gymmesh_responses import params_from_json
from tests.unit.codec import strategies
from tests.unit.gateway_dialects import answers
from tests.unit.gateway_dialects.answers import answer_of
from tests.unit.gateway_dialects.requests import LEFT_OUT, PATHS, ask, cases

Json = dict[str, Any]

BODIES = {dialect: [case["body"] for case in cases(f"read_{dialect}.yaml")] for dialect in DIALECTS}


def check(dialect: str, body: object, headers: dict[str, str] | None = None) -> None:
    """The body is read or refused; what was read can be used."""
    found = ask(PATHS[dialect], body, headers=headers)
    if isinstance(found, Refusal):
        assert found.message.startswith("The request can't be read: ")
        assert found.message.endswith(".")
        assert len(found.message) < 400
        assert found.message.isprintable()
        DIALECTS[dialect].write_refusal(found)
        return
    params_from_json({**found.params, "tools": list(found.tools), "input": []})
    assert "input" not in found.params
    assert set(found.left_out) <= set(LEFT_OUT[dialect])
    assert len(found.digest) == 16
    answer = answer_of([answers.message("hi"), answers.call("f", "{}")])
    DIALECTS[dialect].write(found, answer)
    assert list(DIALECTS[dialect].write_stream(found, answer))


@st.composite
def changed(draw: st.DrawFn, dialect: str) -> Any:
    """A body of the cases with one place that holds something else."""
    body = copy.deepcopy(draw(st.sampled_from(BODIES[dialect])))
    place: Any = body
    for _ in range(draw(st.integers(0, 8))):
        inner = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not inner:
            break
        key = draw(st.sampled_from(inner))
        if isinstance(place[key], dict | list) and draw(st.integers(0, 3)):
            place = place[key]
            continue
        place[key] = draw(strategies.documents)
        break
    return body


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data())
def test_changed_bodies(dialect: str, data: st.DataObject) -> None:
    check(dialect, data.draw(changed(dialect)))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(strategies.documents)
def test_any_json(dialect: str, body: Any) -> None:
    check(dialect, body)
    check(dialect, {"messages": body, "input": body, "contents": body})
    check(dialect, {"messages": [], "input": [], "contents": [], "tools": body, "system": body})


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.binary(max_size=60))
def test_any_bytes(dialect: str, raw: bytes) -> None:
    check(dialect, raw)
    check(dialect, b'{"messages": [], "input": [], "contents": [' + raw + b"]}")


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "user-agent",
                "thread-id",
                "x-codex-turn-metadata",
                "x-codex-parent-thread-id",
                "x-openai-subagent",
                "x-claude-code-session-id",
                "x-session-id",
                "idempotency-key",
                "x-stainless-retry-count",
            ]
        ),
        st.one_of(st.text(), strategies.documents.map(lambda value: json.dumps(value))),
    )
)
def test_any_headers(headers: dict[str, str]) -> None:
    check("responses", {"input": "hi"}, headers)
    check("anthropic", {"messages": []}, headers)


@given(
    st.sampled_from(["GET", "POST", "HEAD", "PUT"]),
    st.text(),
    st.dictionaries(st.text(), st.text()),
)
def test_any_path(method: str, path: str, headers: dict[str, str]) -> None:
    for one in (path, f"/v1/{path}", f"/v1beta/models/{path}:generateContent"):
        route(method, one, {}, headers)
        dialect_for(one, headers)


DEEP = b"[" * 100_000 + b"]" * 100_000
PLACES = {
    "responses": b'{"input": [{"type": "x", "a": %b}]}',
    "chat": b'{"messages": [{"role": "user", "content": [{"type": "x", "a": %b}]}]}',
    "anthropic": b'{"messages": [], "tools": [{"name": "f", "input_schema": {"a": %b}}]}',
    "gemini": b'{"contents": [], "generationConfig": {"responseSchema": {"items": %b}}}',
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("levels", [90, 110, 240, 260, 900, 100_000])
def test_deep_bodies(dialect: str, levels: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"items":', b"}")):
        deep = opening * levels + b"1" + closing * levels
        check(dialect, PLACES[dialect] % deep)
        check(dialect, deep)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_large_bodies(dialect: str) -> None:
    key = {"responses": "input", "gemini": "contents"}.get(dialect, "messages")
    many = ask(PATHS[dialect], {key: [{"role": "user"}] * (MAX_ITEMS + 1)})
    assert isinstance(many, Refusal)
    assert many.kind is RefusalKind.TOO_LARGE
    large = ask(PATHS[dialect], b" " * (MAX_BODY_BYTES + 1))
    assert isinstance(large, Refusal)
    assert large.kind is RefusalKind.TOO_LARGE


def test_more_items_than_messages() -> None:
    """A bound on messages alone would let each hold as many calls."""
    calls = [{"id": "a", "function": {"name": "f", "arguments": ""}}] * 15_000
    found = ask(PATHS["chat"], {"messages": [{"role": "assistant", "tool_calls": calls}] * 2})
    assert isinstance(found, Refusal)
    assert found.kind is RefusalKind.TOO_LARGE


def test_names_that_collide_cost_no_square() -> None:
    inner = [{"type": "function", "name": "é" * 3}] * 1_900
    calls = [
        {"type": "function_call", "namespace": "n", "name": f"{'é' * 70}{index}", "call_id": "c"}
        for index in range(MAX_ITEMS)
    ]
    tools = [{"type": "namespace", "name": "n", "tools": inner}]
    began = time.process_time()
    found = ask(PATHS["responses"], {"input": calls, "tools": tools})
    assert isinstance(found, GatewayRequest)
    assert len(set(found.tool_names)) == MAX_ITEMS + 1
    assert time.process_time() - began < 30  # of CPU; a square would take minutes


def test_answers_in_the_other_order_cost_no_square() -> None:
    calls = [{"functionCall": {"id": str(index), "name": "f"}} for index in range(9_000)]
    outputs = [{"functionResponse": {"id": str(index), "name": "f"}} for index in range(9_000)]
    body = {"contents": [{"role": "model", "parts": calls}, {"parts": outputs[::-1]}]}
    found = ask(PATHS["gemini"], body)
    assert isinstance(found, GatewayRequest)
    assert len(found.items) == 18_000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_key_is_not_repeated(dialect: str) -> None:
    check(dialect, b'{"%b": NaN}' % (b"k" * 100_000))
    check(dialect, {"messages": [{"role": "x" * 100_000}], "input": 1, "contents": 1})
    deep = b'{"kk":' * 300 + b"1" + b"}" * 300
    check(dialect, PLACES[dialect] % deep)
