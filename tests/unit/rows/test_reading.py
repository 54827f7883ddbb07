"""Rows are read: calls, conversations and prompts; damage is named; earlier forms give the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gymmesh_responses import dumps, loads
from gymmesh_rows import Row, RowError, nemo_row, read_row

Json = dict[str, Any]
VECTORS: dict[str, Json] = {
    one["fold_vector"]: one["row"]
    for one in json.loads(
        (Path(__file__).parents[2] / "contract" / "vectors" / "rows.json").read_text()
    )["rows"]
}
NEMO: Json = {
    "responses_create_params": {"input": "What is 2+3?", "tools": []},
    "response": {
        "id": "r",
        "model": "m",
        "output": [
            {"type": "reasoning", "summary": []},
            {
                "type": "function_call", "call_id": "f", "name": "add", "arguments": "{}",
                "prompt_token_ids": [1, 2], "generation_token_ids": [3, 4],
                "generation_log_probs": [-0.5, -0.25],
            },
            {"type": "function_call_output", "call_id": "f", "output": "5"},
            {
                "type": "message", "role": "assistant", "content": "5",
                "prompt_token_ids": [1, 2, 3, 4, 5], "generation_token_ids": [6],
                "generation_log_probs": [-1.0],
            },
            {"role": "user", "content": "Sure?"},
            {
                "type": "message", "role": "assistant", "content": "Yes",
                "prompt_token_ids": [1, 9], "generation_token_ids": [7],
                "generation_log_probs": [None],
            },
        ],
        "usage": {"input_tokens": 9, "output_tokens": 4},
    },
    "reward": 1,
    "turns": "theirs",
    "metadata": {"source": "s", "seed": "none"},
    "agent_ref": {"name": "a"},
    "_ng_task_index": 3,
}  # fmt: skip


def row_of(document: Any) -> Row:
    return read_row(dumps(document))


def texts(items: list[Any]) -> list[Any]:
    """What a reader sees first of each item."""
    read = [loads(bytes(item)) for item in items]
    return [one.get("content", one.get("output", one.get("arguments"))) for one in read]


@pytest.mark.parametrize("name", VECTORS)
def test_a_row_is_read_and_its_calls_are_the_conversation(name: str) -> None:
    row = row_of(VECTORS[name])
    assert [call.call_id for call in row.calls] == [
        one["call_id"] for one in VECTORS[name].get("calls", [])
    ]
    assert row.extras.get("expected_answer") == "5"
    assert row.params["temperature"] in (0.7, 1)
    final = row.final_call
    if final is None:
        assert not row.response.output
        return
    path = row.path(final)
    assert [item for call in path for item in row.part(call)] == row.response.output
    for call in row.calls:
        before = call.item_count - len(row.answer(call) + row.replies(call))
        assert before == call.context_count


def test_prompts_are_put_together_of_what_calls_add() -> None:
    row = row_of(VECTORS["captured_program"])
    prompts = {call.call_id: row.prompt(call) for call in row.calls}
    known = {name: None if one is None else one.tolist() for name, one in prompts.items()}
    assert known == {"c1": [1, 2], "s1": None, "c2": [1, 2, 3, 4, 5], "c3": None, "c4": [1, 9]}


def asked_row(value: Any, *calls: Json) -> Row:
    """A row whose first call has what a gateway annotates."""
    base = {"model": "m", "trainable": True, "item_count": 0, "answer_count": 0, "detached": True}
    made = [{"call_id": f"c{number}", **base, **one} for number, one in enumerate(calls, 1)]
    note = {"key": "script.gateway_request", "value": value, "model_call_id": "c1"}
    params = {"input": "?", "tools": [{"type": "function", "name": "shell"}], "temperature": 1}
    vector = VECTORS["captured_program"]
    response = vector["response"] | {"output": []}
    given = {"responses_create_params": params, "response": response, "actors": []}
    return row_of(vector | given | {"calls": made, "annotations": [note]})


def test_calls_asked_for_what_their_actors_call_before_them_did() -> None:
    captured: Json = {"link": "UNKNOWN"}
    asked = {"tools": [], "instructions": "Be brief.", "params": {"temperature": 0, "top_p": 0.5}}
    row = asked_row(asked, captured, {"actor": "a", **captured}, {}, captured)
    sent = {call.call_id: dict(row.sent_params(call)) for call in row.calls}
    programs = {"tools": [], "instructions": "Be brief.", "temperature": 1, "top_p": 0.5}
    rows = {key: row.params[key] for key in ("tools", "temperature")}
    # The third is the agent's own, and nothing is known of what the other actor's program sent.
    assert sent == {"c1": programs, "c2": rows, "c3": rows, "c4": programs}
    assert [call.call_id for call in row.calls if row.is_asked_by_program(call)] == ["c1", "c4"]


@pytest.mark.parametrize(("value", "key"), [([], ""), ({"params": [1]}, ".params")])
def test_an_annotation_that_no_gateway_wrote_is_named(value: Any, key: str) -> None:
    row = asked_row(value, {"link": "UNKNOWN"})
    with pytest.raises(RowError, match=f"annotations: gateway_request{key}: must be an object"):
        row.sent_params(row.calls[0])


def test_what_actors_said_begins_where_they_began() -> None:
    row = row_of(VECTORS["actors"])
    (critic,) = row.actor_conversations("critic")
    assert [call.call_id for call in critic.calls] == ["k1", "k2"]
    assert (critic.before, critic.after) == ([], "")
    first, second = row.actor_conversations("Ａ")
    assert [call.call_id for call in first.calls] == ["h1", "h2"]
    assert [call.call_id for call in second.calls] == ["h1", "h3"]
    assert texts(first.before) == ["What is 2+3?"]
    (side,) = row.actor_conversations("\U0001f600")
    assert side.after == "c1"
    assert texts(side.before) == ["What is 2+3?", "draft"]


@pytest.mark.parametrize("name", VECTORS)
def test_nemo_gyms_form_is_read_into_the_same_calls(name: str) -> None:
    row = row_of(VECTORS[name])
    whole = nemo_row(row)
    again = row_of(whole)
    assert nemo_row(again) == whole
    assert again.response.output == [] or again.calls
    assert (again.reward, again.task_id, again.extras) == (row.reward, row.task_id, row.extras)
    assert [one.name for one in again.actors] == [one.name for one in row.actors]
    if again.final_call is not None:
        path = again.path(again.final_call)
        assert texts([item for call in path for item in again.part(call)]) == texts(
            row.response.output
        )


def test_nemo_gyms_form_has_no_state_of_the_session() -> None:
    assert "final_state" in VECTORS["kept_state"]
    made = nemo_row(row_of(VECTORS["kept_state"]))
    assert "final_state" not in made
    again = row_of(made | {"final_state": {"state": {"expected": "5"}}})
    assert "final_state" not in nemo_row(again)


def test_a_row_of_nemo_gym() -> None:
    row = row_of(NEMO)
    assert row.reward == 1.0
    first, second, third = row.calls
    assert [call.trainable for call in row.calls] == [True, True, True]
    assert [len(row.answer(call)) for call in row.calls] == [2, 1, 1]
    assert texts(row.replies(first)) == ["5"]
    assert texts(row.opening) == ["What is 2+3?"]
    prompts = [row.prompt(call) for call in row.calls]
    assert [None if one is None else one.tolist() for one in prompts] == [
        [1, 2], [1, 2, 3, 4, 5], [1, 9],
    ]  # fmt: skip
    assert second.tokens is not UNSET
    assert second.tokens.prompt_token_ids == [5]  # what it added
    assert third.tokens is not UNSET
    assert third.tokens.fork is not UNSET
    assert third.tokens.logprobs == [None]
    assert b"token_ids" not in b"".join(map(bytes, row.response.output))
    assert row.extras == {"turns": "theirs", "agent_ref": {"name": "a"}, "_ng_task_index": 3}
    assert nemo_row(row) == NEMO


def test_a_call_whose_prompt_is_not_known() -> None:
    document = copy.deepcopy(NEMO)
    del document["response"]["output"][3]["prompt_token_ids"]
    row = row_of(document)
    assert [row.prompt(call) is None for call in row.calls] == [False, True, False]


def test_unpaired_surrogates_and_large_integers_are_read() -> None:
    document = copy.deepcopy(VECTORS["captured_program"])
    document["odd"] = ["\ud800", 2**70]
    row = row_of(document)
    assert row.extras["odd"] == ["\ud800", 2**70]
    assert row.by_id["c1"].tokens == row_of(VECTORS["captured_program"]).by_id["c1"].tokens
    document["calls"][0]["trainable"] = 3
    with pytest.raises(RowError, match=r"calls\[0\]\.trainable: Expected `bool`, got `int`"):
        row_of(document)


def _set(*path: Any, to: Any) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        *outer, last = path
        for step in outer:
            document = document[step]
        document[last] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("response", to=3), "response: must be an object"),
        (_set("responses_create_params", to=None), "responses_create_params: must be an object"),
        (_set("reward", to="1"), "reward: must be a number or null"),
        (_set("reward", to=10**400), "reward"),
        (_set("calls", 0, "item_count", to=99), r"calls\[0\]: some of its items are missing"),
        (_set("calls", 0, "answer_count", to=7), r"calls\[0\]: some of its items are missing"),
        (_set("calls", 4, "first_item", to=1), r"calls\[4\]: some of its items are missing"),
        (_set("calls", 4, "first_item", to=-1), r"calls\[4\]: some of its items are missing"),
        (
            _set("calls", 0, "tokens", "output_token_ids", to=[1, -2]),
            r"calls\[0\]\.tokens\.output_token_ids: has a number that is not a token id",
        ),
        (
            _set("calls", 0, "tokens", "prompt_token_ids", to=[2**31]),
            r"calls\[0\]\.tokens\.prompt_token_ids: has a number that is not a token id",
        ),
        (_set("calls", 0, "tokens", "logprobs", to=[-1.0]), "2 token ids were sampled"),
        (_set("calls", 0, "tokens", "logprobs", to=["a", 1]), r"logprobs\[0\]|logprobs"),
        (_set("turns", 0, "reward", to="high"), r"turns\[0\]\.reward"),
        (_set("verification", "reward", to=True), "verification.reward"),
    ],
)
def test_damage_is_named(change: Callable[[Json], None], said: str) -> None:
    document = copy.deepcopy(VECTORS["captured_program"])
    change(document)
    with pytest.raises(RowError, match=said):
        row_of(document)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "is not a line of JSON"),
        (b"{\n", "is not a line of JSON: not valid JSON at column 2"),
        (b"[]", "must be a JSON object"),
        (b"{}", "responses_create_params: is missing"),
        (b'{"responses_create_params":{},"response":{"output":7}}', "response.output"),
        (b'{"responses_create_params":{},"response":{"output":[7]}}', r"response.output\[0\]"),
        (b"\x1f\x8b", "gzip"),
    ],
)
def test_what_is_no_row(line: bytes, said: str) -> None:
    with pytest.raises(RowError, match=said):
        read_row(line)


def test_calls_that_form_no_tree_are_named() -> None:
    document = copy.deepcopy(VECTORS["captured_program"])
    calls = document["calls"]
    calls[3]["parent_call_id"] = "nowhere"
    row = row_of(document)
    with pytest.raises(RowError, match="the parent 'nowhere' of call 'c3' is missing"):
        row.path(row.calls[3])
    calls[3]["parent_call_id"], calls[2]["parent_call_id"] = "c2", "c3"
    row = row_of(document)
    with pytest.raises(RowError, match="form a cycle"):
        row.path(row.calls[3])


@given(st.sampled_from(sorted(VECTORS)), st.data())
def test_a_changed_byte_never_raises_anything_else(name: str, data: st.DataObject) -> None:
    line = bytearray(dumps(VECTORS[name]))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] = data.draw(st.integers(0, 255))
    try:
        row = read_row(bytes(line))
        nemo_row(row)
    except RowError:
        pass
