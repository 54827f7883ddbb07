from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.backends.replay.recording import (
    Recording,
    RecordingError,
    read_recording,
    read_row,
    repeat_of,
    split_output,
)

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def call(call_id: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": "1"}


def recording(*rows: Json) -> Recording:
    return Recording([read_row(row, index) for index, row in enumerate(rows)])


def found(recorded: Recording, value: Any, rollout_id: str = "") -> tuple[int, int]:
    place = recorded.find(value, rollout_id)
    assert place is not None
    return place[0].index, place[1]


def test_scripted_answers_follow_the_conversation() -> None:
    recorded = recording(
        {"match": "q", "answers": [{"output": [call("a"), call("b")]}, {"text": "done"}]},
        {"match": "other", "answers": [{"text": "x"}]},
    )
    answers = recorded.rows[0].answers
    first = answers[0].document["output"]
    base = [user("an example"), {"role": "assistant", "content": "its answer"}, user("q")]
    assert found(recorded, base) == (0, 0)
    assert found(recorded, [*base, *first, output("a"), output("b")]) == (0, 1)
    turn = [*base, *first, output("a"), output("b"), *answers[1].document["output"]]
    assert found(recorded, [*turn, user("and now?")]) == (0, 2)
    assert found(recorded, "other") == (1, 0)
    assert recorded.find("unknown", "") is None


def test_an_agent_that_leaves_reasoning_out_still_gets_the_next_answer() -> None:
    thought = {"type": "reasoning", "summary": []}
    recorded = recording(
        {"match": "q", "answers": [{"output": [thought, call("a")]}, {"text": "done"}]}
    )
    assert found(recorded, [user("q"), call("a"), output("a")]) == (0, 1)


def test_rows_of_one_conversation_are_its_repeats() -> None:
    recorded = recording(
        {"match": "q", "answers": [{"text": "first"}]},
        {"match": "q", "answers": [{"text": "second"}]},
        {"match": "p", "repeat": 4, "answers": [{"text": "fourth"}]},
        {"match": "p", "repeat": 0, "answers": [{"text": "zeroth"}]},
        {"match": "p", "repeat": 1, "answers": [{"text": "other"}]},
    )
    assert [found(recorded, "q", f"run/t/{k}")[0] for k in range(4)] == [0, 1, 0, 1]
    assert [found(recorded, "p", f"run/t/{k}")[0] for k in (0, 1, 4)] == [3, 4, 2]


def test_the_longest_match_wins_and_the_star_loses() -> None:
    recorded = recording(
        {"match": "*", "answers": [{"text": "any"}]},
        {"match": "thanks", "answers": [{"text": "short"}]},
        {"match": ["hello", "thanks"], "answers": [{"text": "long"}]},
    )
    said = {"role": "assistant", "content": "…"}
    assert found(recorded, [user("hello"), said, user("thanks")])[0] == 2
    assert found(recorded, [user("bye"), said, user("thanks")])[0] == 1
    assert found(recorded, [user("hello")]) == (0, 0)
    assert found(recorded, [user("hello"), said]) == (0, 1)


@pytest.mark.parametrize(
    ("rollout_id", "repeat"),
    [("run-1/task-7/2", 2), ("r-12", 12), ("7", 7), ("", 0), ("5f0c2a17", 0), ("t/x", 0)],
)
def test_the_repeat_in_a_rollout_id(rollout_id: str, repeat: int) -> None:
    assert repeat_of(rollout_id) == repeat


@given(st.lists(st.sampled_from(["call", "output", "user"]), max_size=12))
def test_splitting_loses_no_model_item_and_keeps_the_order(kinds: list[str]) -> None:
    items: list[Json] = []
    for index, kind in enumerate(kinds):
        make = {"call": call, "output": output, "user": user}[kind]
        items.append(make(str(index)))
    parts = split_output(items)
    assert [item for part in parts for item in part] == [
        item for item in items if item.get("type") == "function_call"
    ]
    assert all(parts)


def test_recorded_rollouts_replay_as_they_were(golden_dir: Path) -> None:
    for path in sorted(golden_dir.glob("*rollouts.jsonl")):
        recorded = read_recording(path)
        for index, line in enumerate(path.read_bytes().splitlines()):
            row = json.loads(line)
            items, expected = row["responses_create_params"]["input"], row["response"]["output"]
            same = [r for r in recorded.rows if r.texts == recorded.rows[index].texts]
            rollout_id = f"x/{same.index(recorded.rows[index])}"
            base, replayed = list(items), list[Json]()
            outputs = [one for one in expected if one["type"] == "function_call_output"]
            while (place := recorded.find(base + replayed, rollout_id)) and place[1] < len(
                place[0].answers
            ):
                answer = place[0].answers[place[1]].document["output"]
                replayed += answer
                called = {one["call_id"] for one in answer if one["type"] == "function_call"}
                replayed += [one for one in outputs if one["call_id"] in called]
            assert replayed == expected, f"{path.name}, row {index + 1}"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (3, "JSON object"),
        ({"answers": []}, "'match'"),
        ({"match": "q"}, "'answers'"),
        ({"match": "q", "answer": []}, "'answer'"),
        ({"match": "q", "answers": [{}]}, "answers[0]"),
        ({"match": "q", "answers": [{"text": "x", "delay": 1}]}, "'delay'"),
        ({"match": "q", "answers": [{"text": "x", "delay_s": -1}]}, "delay_s"),
        ({"match": "q", "answers": [{"error": {}}]}, "'reason'"),
        ({"responses_create_params": {}, "response": {}}, "response.output"),
        ({"responses_create_params": {}, "response": {"output": []}}, "user message"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: Any, words: str) -> None:
    path = tmp_path / "recorded.jsonl"
    good = json.dumps({"match": "q", "answers": [{"text": "x"}]})
    path.write_text(f"{good}\n\n{json.dumps(row)}\n")
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert f"{path}, line 3: " in str(caught.value)
    assert words in str(caught.value)
