"""What a format does not read of a row changes nothing of what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_client import UserError
from gymmesh_data import FORMATS, ExportOptions, Selection, read_rollouts, samples_of
from gymmesh_data.exports.records import records
from gymmesh_data.exports.summary import ExportSummary
from gymmesh_data.row_parts import RowParts
from tests.unit.data.rows import Json, call, result, row, text, write_rows

PARTIAL = [name for name, form in FORMATS.items() if form.reads is not RowParts.ALL]
# Text that JSON writes in more than one way, and that only the slower parser reads.
TEXTS = st.sampled_from(["", "5", "a b", "é 漢 😀", 'quote " and \\', "\ud800", "null"])
IDS = st.lists(st.integers(0, 9), max_size=3)


@st.composite
def model_calls(draw: st.DrawFn) -> list[Json]:
    """The items of some model calls; each goes on from the tokens of the one before, or forks."""
    held, output = draw(IDS), list[Json]()
    for number in range(draw(st.integers(0, 3))):
        items = [
            {"type": "reasoning", "summary": [], "content": [{"type": "t", "text": draw(TEXTS)}]},
            text(draw(TEXTS), id="m"),
            call("add", draw(st.sampled_from(['{"n": 1.50}', "", "{", "[2]"])), f"c{number}"),
        ]
        chosen = draw(st.lists(st.sampled_from(items), min_size=1, max_size=3))
        output += [dict(one) for one in chosen]
        if draw(st.booleans()):
            sampled = draw(IDS)
            output[-1] |= {"prompt_token_ids": held, "generation_token_ids": sampled}
            if draw(st.booleans()):
                output[-1]["generation_log_probs"] = [-0.5] * len(sampled)
            forks = draw(st.integers(0, 5)) == 0
            held = draw(IDS) if forks else [*held, *sampled, *draw(IDS)]
        output.append(result(f"c{number}", draw(TEXTS)))
    return output


@st.composite
def rollouts(draw: st.DrawFn) -> Json:
    more: Json = {"verification": {"evidence": {"got": draw(TEXTS)}}, "seed": 2**70}
    if draw(st.booleans()):
        more["metadata"] = {"steps_taken": 1, "weights_versions": [3], "other": [None]}
    if draw(st.booleans()):
        more["tags"] = {"level": draw(TEXTS)}
    if draw(st.booleans()):
        more["first_items"] = [{"role": "developer", "content": draw(TEXTS)}]
    tool = {"type": "function", "name": "add", "parameters": {}, "strict": draw(st.booleans())}
    return row(
        *draw(model_calls()),
        task=draw(st.sampled_from(["", "t1", "t2"])),
        reward=draw(st.sampled_from([None, 0.0, 1, 0.5])),
        prompt=draw(TEXTS),
        params={"tools": [tool], "parallel_tool_calls": draw(st.booleans()), "top_p": 1.0},
        **more,
    )


def exported(path: Path, name: str, parts: RowParts, options: ExportOptions) -> tuple[bytes, Json]:
    summary = ExportSummary()
    spool = path.with_name("spool")
    made = records(read_rollouts([path], parts), FORMATS[name], options, summary, spool)
    return b"".join(made), summary.to_dict()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(rollouts(), min_size=1, max_size=5),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_a_format_writes_the_same_of_the_parts_that_it_reads(
    found: list[Json], separators: tuple[str, str], distinct: bool
) -> None:
    options = ExportOptions(Selection(distinct=distinct))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(one, separators=separators) + "\n" for one in found))
        for name in PARTIAL:
            parts = FORMATS[name].parts(distinct)
            assert parts is not RowParts.ALL
            whole = exported(path, name, RowParts.ALL, options)
            assert exported(path, name, parts, options) == whole, name


def test_the_formats_that_most_people_use_read_parts() -> None:
    assert {"messages", "sft", "tokens", "dpo"} <= set(PARTIAL)


def test_what_is_not_read_is_not_there(tmp_path: Path) -> None:
    tokens: dict[str, Any] = {"prompt_token_ids": [1], "generation_token_ids": [2]}
    path = write_rows(tmp_path / "rows.jsonl", [row(text("5", **tokens), verification={"a": 1})])
    items: dict[RowParts, Json] = {}
    for parts in RowParts:
        (rollout,) = read_rollouts([path], parts)
        items[parts] = rollout.output[0]
        assert ("verification" in rollout.row) is (parts is RowParts.ALL)
    assert items[RowParts.ALL]["prompt_token_ids"] == [1]
    assert "prompt_token_ids" not in items[RowParts.CHAT]
    assert type(items[RowParts.CHAT]["generation_token_ids"]) is msgspec.Raw
    assert "content" not in items[RowParts.TOKENS]
    assert bytes(items[RowParts.CHAT_AND_TOKENS]["prompt_token_ids"]) == b"[1]"


@pytest.mark.parametrize("parts", [RowParts.TOKENS, RowParts.CHAT_AND_TOKENS])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prompt_token_ids", "1"),
        ("prompt_token_ids", [1, None]),
        ("prompt_token_ids", ["\ud800"]),
        ("generation_token_ids", {"a": 1}),
        ("generation_token_ids", [1.5]),
        ("generation_log_probs", ["x"]),
    ],
)
def test_lists_that_are_left_as_text_are_checked(
    tmp_path: Path, parts: RowParts, key: str, value: object
) -> None:
    first = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1]}
    second: dict[str, Any] = {**first, "prompt_token_ids": [1, 2, 3], key: value}
    path = write_rows(tmp_path / "rows.jsonl", [row(text("4", **first), text("5", **second))])
    (rollout,) = read_rollouts([path], parts)
    with pytest.raises(
        UserError, match=rf"rows\.jsonl:1: response\.output\[1\]\.{key}: must be a list of numbers"
    ):
        samples_of(rollout)


def test_a_beginning_is_not_the_half_of_a_number(tmp_path: Path) -> None:
    first = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1]}
    second = {**first, "prompt_token_ids": [1, 23], "generation_token_ids": [4]}
    path = tmp_path / "rows.jsonl"
    found = row(text("4", **first), text("5", **second))
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    (rollout,) = read_rollouts([path], RowParts.TOKENS)
    assert [one.input_ids for one in samples_of(rollout)] == [[1, 2], [1, 23, 4]]
