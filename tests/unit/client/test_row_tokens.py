"""Tokens in rows of NeMo Gym's form: whole again, with the item that ends each answer."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from msgspec import UNSET

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import fold
from gymmesh_client.rollout import RolloutParts, call_tokens
from gymmesh_client.rows import completed_line
from gymmesh_responses import dumps, function_call_output, item_from_json, loads
from gymmesh_rows import RowError, nemo_row, read_row
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

CALL = {"type": "function_call", "call_id": "f1", "name": "add", "arguments": "{}"}


def ids(*tokens: int) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def rollout(*captures: tokens_pb2.TokenCapture) -> pb.Rollout:
    """A tool call, and then answers, each continuing the one before."""
    bodies: list[pb.RolloutEvent] = []
    for number, capture in enumerate(captures, start=1):
        body = answer(f"answer {number}", f"c{number}")
        call = body.model_call_completed
        call.parent_call_id = f"c{number - 1}" if number > 1 else ""
        call.tokens.CopyFrom(capture)
        bodies.append(body)
        if number == 1:
            call.response.output.append(item_from_json(CALL))
            done = pb.RolloutEvent()
            done.tool_call_completed.call_id = "f1"
            done.tool_call_completed.model_call_id = "c1"
            done.tool_call_completed.output.CopyFrom(function_call_output("f1", "5"))
            bodies.append(done)
    events = make_events("ro", 1, *bodies, verdict(1.0), completed(), task=make_task())
    return fold(events, "ro", 1)


def row_of(folded: pb.Rollout) -> dict[str, Any]:
    """The row in NeMo Gym's form."""
    return nemo_row(read_row(completed_line(make_task(), RolloutParts.of(folded))[0]))


def test_prompts_are_whole_again() -> None:
    spans = [tokens_pb2.WeightsSpan(version=7), tokens_pb2.WeightsSpan(version=8, first_token=1)]
    folded = rollout(
        tokens_pb2.TokenCapture(
            prompt_token_ids=ids(1, 2), output_token_ids=ids(3, 4), logprobs=floats(-0.5, -2.0)
        ),
        tokens_pb2.TokenCapture(
            prompt_token_ids=ids(5),
            output_token_ids=ids(6, 7),
            logprobs=floats(-1.0, 0.0),
            prompt_prefix_tokens=4,
            weights=spans,
        ),
    )
    row = row_of(folded)
    output = row["response"]["output"]
    assert [item["type"] for item in output] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert "prompt_token_ids" not in output[0]
    assert "prompt_token_ids" not in output[2]
    keys = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    assert [output[1][key] for key in keys] == [[1, 2], [3, 4], [-0.5, -2.0]]
    assert [output[3][key] for key in keys] == [[1, 2, 3, 4, 5], [6, 7], [-1.0, 0.0]]
    assert row["metadata"]["weights_versions"] == [7, 8]
    assert "token_forks" not in row["metadata"]


def test_a_fork_begins_anew_and_is_said() -> None:
    fork = tokens_pb2.Fork(reason=tokens_pb2.FORK_REASON_MEDIA, common_tokens=1)
    folded = rollout(
        tokens_pb2.TokenCapture(prompt_token_ids=ids(1, 2), output_token_ids=ids(3)),
        tokens_pb2.TokenCapture(prompt_token_ids=ids(1, 9), output_token_ids=ids(8), fork=fork),
        tokens_pb2.TokenCapture(
            prompt_token_ids=ids(5), output_token_ids=ids(6), prompt_prefix_tokens=3
        ),
    )
    output = row_of(folded)["response"]["output"]
    assert output[-2]["prompt_token_ids"] == [1, 9]
    assert output[-1]["prompt_token_ids"] == [1, 9, 8, 5]
    forks = row_of(folded)["metadata"]["token_forks"]
    assert forks == [{"call_id": "c2", "reason": "MEDIA", "common_tokens": 1}]


def test_a_prompt_that_cannot_be_put_together_is_left_out() -> None:
    folded = rollout(
        tokens_pb2.TokenCapture(prompt_token_ids=ids(1), output_token_ids=ids(2)),
        tokens_pb2.TokenCapture(
            prompt_token_ids=ids(5), output_token_ids=ids(6), prompt_prefix_tokens=9
        ),
    )
    assert call_tokens(folded.model_calls)["c2"].prompt is None
    last = row_of(folded)["response"]["output"][-1]
    assert "prompt_token_ids" not in last
    assert last["generation_token_ids"] == [6]


def test_a_row_without_tokens_says_nothing_of_them() -> None:
    folded = rollout(tokens_pb2.TokenCapture(), tokens_pb2.TokenCapture())
    row = row_of(folded)
    assert not any("generation_token_ids" in item for item in row["response"]["output"])
    assert not {"weights_versions", "token_forks"} & set(row["metadata"])


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ([-0.5], "has 8 bytes of token ids, but 4 bytes of log probabilities"),
        ([-0.5, 0.5], "0.5 is positive"),
        ([float("nan"), 0.5], "0.5 is positive"),
    ],
)
def test_what_a_reader_refuses_is_not_written(known: list[float], words: str) -> None:
    capture = tokens_pb2.TokenCapture(output_token_ids=ids(3, 4), logprobs=floats(*known))
    with pytest.raises(ValueError, match=words):
        completed_line(make_task(), RolloutParts.of(rollout(capture)))


def test_log_probabilities_that_are_not_finite_are_written_as_null() -> None:
    capture = tokens_pb2.TokenCapture(
        output_token_ids=ids(3, 4), logprobs=floats(float("inf"), 0.0001)
    )
    row = read_row(completed_line(make_task(), RolloutParts.of(rollout(capture)))[0])
    assert row.calls[0].tokens is not UNSET
    assert row.calls[0].tokens.logprobs[0] is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("output_token_ids", [3, -4], "token id"),
        ("output_token_ids", [3], "1 token ids were sampled, but there are 2 log probabilities"),
        ("prompt_token_ids", [-1], "token id"),
        ("logprobs", [-0.5, 0.5], "0.5 is positive"),
        ("logprobs", [None, 0.5], "0.5 is positive"),
        ("logprobs", [-0.5], "but there are 1 log probabilities"),
    ],
)
def test_tokens_that_cannot_be_are_refused(key: str, value: list[Any], words: str) -> None:
    capture = tokens_pb2.TokenCapture(
        prompt_token_ids=ids(1, 2), output_token_ids=ids(3, 4), logprobs=floats(-0.5, -2.0)
    )
    row = completed_line(make_task(), RolloutParts.of(rollout(capture)))[0]
    document: Any = loads(row)
    document["calls"][0]["tokens"][key] = value
    with pytest.raises(RowError, match=words):
        read_row(dumps(document))
    earlier: Any = nemo_row(read_row(row))
    (item,) = [one for one in earlier["response"]["output"] if "generation_token_ids" in one]
    names = {"output_token_ids": "generation_token_ids", "logprobs": "generation_log_probs"}
    item[names.get(key, key)] = value
    with pytest.raises(RowError, match=words):
        read_row(dumps(earlier))
