"""What a row says, in the parts of the page; rows that say it wrongly are shown all the same."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError, completed_row, fold
from gymmesh_data import stored_rollout
from gymmesh_responses import dumps, function_call_output, loads
from gymmesh_view.reading import to_json
from gymmesh_view.rollout.call_tokens import calls_of, tokens_of
from gymmesh_view.rollout.conversation import items_of, parts_of
from gymmesh_view.rollout.detail import detail_of
from gymmesh_view.rollout.images import shown_image
from gymmesh_view.rows.summary import summary_of
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
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
    },
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), anything), st.lists(items, max_size=4))
def test_no_row_is_too_odd(more: dict[str, Any], output: list[dict[str, Any]]) -> None:
    made = row(*output) | more
    rollout = stored_rollout(made, "rows.jsonl:1")
    summary = summary_of(dumps(made), "rows.jsonl:1")
    summary.words.encode()
    detail = detail_of(rollout)
    json.loads(to_json(detail))
    assert len(detail["items"]) == 1 + len(output)


@pytest.mark.parametrize("key", ["generation_token_ids", "generation_log_probs"])
@pytest.mark.parametrize("value", ["2", {"a": 1}, 7, ["x"]], ids=str)
def test_tokens_that_are_none_are_refused_in_a_sentence(key: str, value: object) -> None:
    given = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1.0]}
    line = dumps(row(text("a"), text("b", **(given | {key: value}))))
    with pytest.raises(UserError, match=rf"output\[1\]\.{key}: must be a list"):
        summary_of(line, "rows.jsonl:1")


@given(anything)
def test_what_is_no_row_is_refused_in_a_sentence(value: Any) -> None:
    with pytest.raises(UserError, match=r"rows.jsonl:1"):
        summary_of(dumps(value), "rows.jsonl:1")


def test_items_of_one_model_call_have_one_number() -> None:
    output = [
        reasoning("first"), text("I add."), call("add", "{}", "c1"), call("add", "{}", "c2"),
        result("c1", "2"), result("c2", "5"), text("5"),
    ]  # fmt: skip
    shown = items_of(stored_rollout(row(*output), "x"), first=False)
    assert [one.get("call") for one in shown] == [0, 0, 0, 0, None, None, 1]
    assert summary_of(dumps(row(*output)), "x").turns == 2


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
    rollout = stored_rollout(row(*output), "x")
    found = calls_of(rollout)
    assert [one["call"] for one in found] == [0, 1, 2]
    assert [one["shared"] for one in found] == [0, 3, 1]
    assert [one["fork"] for one in found] == [False, False, True]
    assert tokens_of(rollout, 2)["ids"] == [6, 7]
    assert found[2]["mean_logprob"] == -0.5


def test_a_page_has_side_calls_turns_rewards_of_tools_and_annotations() -> None:
    side, turn, called, note = (pb.RolloutEvent() for _ in range(4))
    side.CopyFrom(answer("a title", "c-side"))
    side.model_call_completed.side_call = "title"
    asked = pb.RolloutEvent()
    asked.model_call_completed.call_id, asked.model_call_completed.trainable = "c0", True
    item = asked.model_call_completed.response.output.add().function_call
    item.call_id, item.name, item.arguments = "f0", "look", b"{}"
    tool = called.tool_call_completed
    tool.call_id, tool.name, tool.model_call_id, tool.reward = "f0", "look", "c0", 0.5
    tool.output.CopyFrom(function_call_output("f0", "seen"))
    turn.turn_completed.turn, turn.turn_completed.model_call_id = 1, "c1"
    turn.turn_completed.reward, turn.turn_completed.done = 0.25, True
    note.ignorable = True
    note.annotation.key, note.annotation.value_json = "agent.note", b'{"plan":1}'
    last = answer("done", "c1")
    last.model_call_completed.parent_call_id = "c0"
    task = make_task()
    events = make_events(
        "ro", 1, side, asked, called, last, turn, note, verdict(1.0), completed(), task=task
    )
    detail = detail_of(stored_rollout(loads(dumps(completed_row(task, fold(events, "ro")))), "x"))
    (said,) = json.loads(detail["side_calls"])
    assert (said["call_id"], said["for"]) == ("c-side", "title")
    assert json.loads(detail["tool_rewards"]) == [{"tool": "look", "call_id": "f0", "reward": 0.5}]
    assert json.loads(detail["turns"]) == [{"turn": 1, "done": True, "reward": 0.25}]
    assert json.loads(detail["annotations"]) == [{"key": "agent.note", "value": {"plan": 1}}]
    assert "calls" not in detail["others"]


@pytest.mark.parametrize(
    ("reason", "comes_again"),
    [("VERIFIER_FAULT", True), ("MODEL_SERVER_ERROR", False), ("\ud800", False), (7, False)],
)
def test_a_page_says_whether_a_failure_is_a_fault_of_code(reason: Any, comes_again: bool) -> None:
    failure = {"boundary": "VERIFIER", "status": {"reason": reason}, "retry_safe": True}
    found = detail_of(stored_rollout(row() | {"failure": failure}, "x"))["failure"]
    assert (found["retry_safe"], found["repeats"]) == (True, comes_again)


def test_a_page_has_so_many_items_of_a_long_rollout() -> None:
    turns = 20_000
    rollout = stored_rollout(
        row(
            *(one for n in range(turns) for one in (call("f", "{}", f"c{n}"), result(f"c{n}", "")))
        ),
        "x",
    )
    detail = detail_of(rollout)
    assert len(detail["items"]) + detail["items_left"] == 2 * turns + 1
    assert len(to_json(detail)) < 1_000_000


def test_json_is_laid_out_and_text_is_left_alone() -> None:
    (shown,) = parts_of('{"a": 18446744073709551617}')
    assert shown == {"as": "json", "text": '{\n  "a": 18446744073709551617\n}'}
    (shown,) = parts_of("{not json}")
    assert shown == {"as": "text", "text": "{not json}"}


def test_what_has_no_form_of_its_own_is_shown_as_json() -> None:
    searched = row({"type": "web_search_call", "query": "trees"})
    (shown,) = items_of(stored_rollout(searched, "x"), first=False)
    assert shown["kind"] == "other"
    assert '"query": "trees"' in shown["parts"][0]["text"]


def test_long_texts_are_cut_and_say_so() -> None:
    (shown,) = parts_of("x" * 300_000)
    assert (len(shown["text"]), shown["left"]) == (200_000, 100_000)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.com/a.png", "does not fetch"),
        ("javascript:alert(1)", "does not fetch"),
        ("data:text/html;base64,AAAA", "text/html"),
        ("data:image/svg+xml,<svg/>", "image/svg+xml"),
        ("data:image/png;base64,!!!!", "does not show"),
        ("data:image/png;base64,AAAAA", "not valid Base64"),
        ("data:image/png;base64," + base64.b64encode(b"<svg/>").decode(), "but its bytes are not"),
        (
            "data:image/webp;base64," + base64.b64encode(b"RIFF0000WAVE").decode(),
            "but its bytes are not",
        ),
    ],
)
def test_images_that_are_not_shown(url: str, why: str) -> None:
    image, said = shown_image(url)
    assert not image
    assert why in said


def test_an_image_that_stands_in_the_row_is_shown() -> None:
    assert shown_image(PNG) == (PNG, "")


def test_a_page_has_an_image_once_however_often_it_was_seen() -> None:
    seen = {"role": "user", "content": [{"type": "input_image", "image_url": PNG}]}
    other = "data:image/gif;base64," + base64.b64encode(b"GIF89a" + bytes(2000)).decode()
    last = {"role": "user", "content": [{"type": "input_image", "image_url": other}]}
    detail = detail_of(stored_rollout(row(seen, text("a"), seen, text("b"), last), "rows.jsonl:1"))
    assert detail["images"] == [PNG, other]
    parts = [part for item in detail["items"] for part in item["parts"] if part["as"] == "image"]
    assert [part["image"] for part in parts] == [0, 0, 1]
    assert [part["text"] for part in parts] == ["", "", ""]
    assert [part["alt"] for part in parts] == ["PNG image", "PNG image", "GIF image, 1 KiB"]
    assert to_json(detail).count(PNG.encode()) == 1


def test_the_images_of_a_page_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymmesh_view.rollout.images._MOST_IN_ALL", len(PNG))
    other = "data:image/gif;base64," + base64.b64encode(b"GIF89a").decode()
    content = [{"type": "input_image", "image_url": url} for url in (PNG, other, PNG)]
    said = {"role": "user", "content": content}
    detail = detail_of(stored_rollout(row(said, text("a")), "rows.jsonl:1"))
    assert detail["images"] == [PNG]
    parts = next(item for item in detail["items"] if len(item["parts"]) == 3)["parts"]
    assert [part["as"] for part in parts] == ["image", "note", "image"]
    assert "is not shown: the rollout has more than" in parts[1]["text"]
