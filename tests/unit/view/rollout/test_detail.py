"""What a row says, in the parts of the page; rows that say it wrongly are shown all the same."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import UserError
from gymmesh_data import stored_rollout
from gymmesh_view.reading import to_json
from gymmesh_view.rollout.call_tokens import calls_of, tokens_of
from gymmesh_view.rollout.conversation import items_of, parts_of
from gymmesh_view.rollout.detail import detail_of
from gymmesh_view.rollout.images import shown_image
from gymmesh_view.rows.summary import summary_of
from tests.unit.data.rows import call, result, row, text
from tests.view.rows import png, reasoning

PNG = png()
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("verification", "failure", "metadata", "tags", "actors", "model_usage", "stop_reason",
        "task_id", "rollout_id", "attempt", "agent")  # fmt: skip
items = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output"])
        | st.text(),
        "role": anything, "content": anything, "output": anything, "arguments": anything,
        "name": anything, "call_id": anything, "summary": anything,
        "generation_token_ids": anything, "prompt_token_ids": anything,
        "generation_log_probs": anything,
    },
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), anything), st.lists(items, max_size=4))
def test_no_row_is_too_odd(more: dict[str, Any], output: list[dict[str, Any]]) -> None:
    made = row(*output) | more
    rollout = stored_rollout(made, "rows.jsonl:1")
    summary = summary_of(made, "rows.jsonl:1")
    summary.words.encode()
    detail = detail_of(rollout)
    json.loads(to_json(detail))
    for one in calls_of(rollout.output):
        json.loads(to_json(tokens_of(rollout.output, one["call"])))
    assert len(detail["items"]) == 1 + len(output)


@given(anything)
def test_what_is_no_row_is_refused_in_a_sentence(value: Any) -> None:
    with pytest.raises(UserError, match=r"rows.jsonl:1"):
        summary_of(value, "rows.jsonl:1")


def test_items_of_one_model_call_have_one_number() -> None:
    output = [
        reasoning("first"), text("I add."), call("add", "{}", "c1"), call("add", "{}", "c2"),
        result("c1", "2"), result("c2", "5"), text("5"),
    ]  # fmt: skip
    shown = items_of([], output)
    assert [one.get("call") for one in shown] == [0, 0, 0, 0, None, None, 1]
    assert summary_of(row(*output), "x").turns == 2


def test_tokens_say_where_a_call_ends_and_where_a_history_was_rewritten() -> None:
    def tokens(prompt: list[int], sampled: list[int]) -> dict[str, Any]:
        return {
            "prompt_token_ids": prompt,
            "generation_token_ids": sampled,
            "generation_log_probs": [-0.5] * len(sampled),
        }

    output = [
        text("a", **tokens([1, 2], [3])),
        text("b", **tokens([1, 2, 3, 4], [5])),
        text("c", **tokens([1, 9], [6, 7])),
    ]
    found = calls_of(output)
    assert [one["call"] for one in found] == [0, 1, 2]
    assert [one["shared"] for one in found] == [0, 3, 1]
    assert [one["fork"] for one in found] == [False, False, True]
    assert tokens_of(output, 2)["ids"] == [6, 7]
    assert found[2]["mean_logprob"] == -0.5


def test_json_is_laid_out_and_text_is_left_alone() -> None:
    (shown,) = parts_of('{"a": 18446744073709551617}')
    assert shown == {"as": "json", "text": '{\n  "a": 18446744073709551617\n}'}
    (shown,) = parts_of("{not json}")
    assert shown == {"as": "text", "text": "{not json}"}


def test_what_has_no_form_of_its_own_is_shown_as_json() -> None:
    (shown,) = items_of([], [{"type": "web_search_call", "query": "trees"}])
    assert shown["kind"] == "other"
    assert '"query": "trees"' in shown["parts"][0]["text"]


def test_long_texts_are_cut_and_say_so() -> None:
    (shown,) = parts_of("x" * 300_000)
    assert (len(shown["text"]), shown["left"]) == (200_000, 100_000)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.com/a.png", "not fetched"),
        ("javascript:alert(1)", "not fetched"),
        ("data:text/html;base64,AAAA", "text/html"),
        ("data:image/svg+xml,<svg/>", "image/svg+xml"),
        ("data:image/png;base64,!!!!", "not shown"),
        ("data:image/png;base64,AAAAA", "not base64"),
        ("data:image/png;base64," + base64.b64encode(b"<svg/>").decode(), "and is not"),
        ("data:image/webp;base64," + base64.b64encode(b"RIFF0000WAVE").decode(), "and is not"),
    ],
)
def test_images_that_are_not_shown(url: str, why: str) -> None:
    image, said = shown_image(url)
    assert not image
    assert why in said


def test_an_image_that_stands_in_the_row_is_shown() -> None:
    assert shown_image(PNG) == (PNG, "")
