"""Files of each format, and that an export is whole, can be gone on with, and harms nothing."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_data import FORMATS, ExportOptions, PairRules, Selection, export
from tests.unit.data.rows import call, read_records, result, row, text, write_rows

TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
TOKENS = {
    "prompt_token_ids": [1, 2],
    "generation_token_ids": [3],
    "generation_log_probs": [-0.5],
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    params = {"tools": TOOLS, "parallel_tool_calls": False}
    return write_rows(
        tmp_path / "rows.jsonl",
        [
            row(
                call("add", '{"left": 2}', "c1"),
                result("c1", "5"),
                text("5"),
                params=params,
                metadata={"steps_taken": 2, "tools_used": ["add"], "weights_versions": [7]},
                tags={"level": "easy"},
            ),
            row(text("6"), repeat=1, reward=0.0, params=params),
            row(text("4", **TOKENS), task="sum-2", reward=None),
            row(text("4"), task="sum-3", reward=0.5),
            row(text("no"), task="sum-4", failure={"boundary": "MODEL"}),
            row(task="sum-5"),
        ],
    )


def exported(
    rows: Path, name: str, options: ExportOptions | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out = rows.parent / name / "out.jsonl"
    summary = export([rows], out, name, options, overwrite=True)
    records = read_records(out)
    assert summary.records == len(records)
    assert [one.name for one in out.parent.iterdir()] == [out.name]
    return records, summary.to_dict()


def test_messages(rows: Path) -> None:
    records, summary = exported(rows, "messages")
    assert records[0] == {
        "prompt": [{"role": "user", "content": "What is 2 + 3?"}],
        "messages": [
            {"role": "user", "content": "What is 2 + 3?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"left": 2}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
            {"role": "assistant", "content": "5"},
        ],
        "tools": CHAT_TOOLS,
        "reward": 1.0,
        "metadata": {
            "task_id": "sum-1",
            "rollout_id": "ro-sum-1-0",
            "repeat_index": 0,
            "environment": "sums",
            "stop_reason": "MODEL_FINISHED",
            "steps_taken": 2,
            "tools_used": ["add"],
            "verified": True,
            "weights_versions": [7],
            "tags": {"level": "easy"},
        },
    }
    assert records[1]["metadata"]["steps_taken"] == 1
    # Not judged is not 0, and is kept.
    assert records[2]["reward"] is None
    assert records[2]["metadata"]["verified"] is False
    assert records[2]["samples"] == [
        {"input_ids": [1, 2, 3], "mask": [0, 0, 1], "logprobs": [0.0, 0.0, -0.5]}
    ]
    assert summary["left_out"] == {"failed rollouts": 1, "rollouts without an answer": 1}
    plain, _ = exported(rows, "messages", ExportOptions(tokens=False))
    assert "samples" not in plain[2]


def test_demonstrations(rows: Path) -> None:
    best = ExportOptions(Selection(min_reward=1.0))
    (record,), summary = exported(rows, "sft", best)
    assert json.loads(record["tools"]) == CHAT_TOOLS
    assert record["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"left": 2}
    assert summary["left_out"]["rollouts with a reward below 1"] == 2
    assert summary["left_out"]["rollouts without a reward"] == 1
    (record,), _ = exported(rows, "openai", best)
    assert record["tools"] == CHAT_TOOLS
    assert record["parallel_tool_calls"] is False
    assert record["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"left": 2}'


def test_tokens(rows: Path) -> None:
    (record,), summary = exported(rows, "tokens")
    assert record["input_ids"] == [1, 2, 3]
    assert record["labels"] == [-100, -100, 3]
    assert (record["sample"], record["samples"]) == (0, 1)
    assert summary["left_out"]["rollouts without token ids"] == 3


def test_pairs(rows: Path) -> None:
    (record,), summary = exported(rows, "dpo")
    assert record["prompt"] == [{"role": "user", "content": "What is 2 + 3?"}]
    assert record["chosen"][0]["tool_calls"][0]["function"]["name"] == "add"
    assert record["rejected"] == [{"role": "assistant", "content": "6"}]
    assert (record["chosen_reward"], record["rejected_reward"]) == (1.0, 0.0)
    assert (record["chosen_rollout_id"], record["rejected_rollout_id"]) == (
        "ro-sum-1-0",
        "ro-sum-1-1",
    )
    assert summary["left_out"]["tasks without two rewards that differ enough"] == 1
    (record,), _ = exported(rows, "openai-dpo")
    assert record["input"]["tools"] == CHAT_TOOLS
    assert record["non_preferred_output"] == [{"role": "assistant", "content": "6"}]
    none, _ = exported(rows, "dpo", ExportOptions(pairs=PairRules(margin=1.5)))
    assert none == []


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"))])
    (tmp_path / "link.jsonl").symlink_to(rows)
    paths = [rows, tmp_path / "." / "rows.jsonl", tmp_path / "link.jsonl"]
    assert export(paths, tmp_path / "out", "messages").records == 1


@pytest.mark.parametrize("name", ["messages", "otel"])
def test_numbers_beyond_a_double_are_named_or_kept(tmp_path: Path, name: str) -> None:
    huge = 10**400
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"), reward=huge)])
    with pytest.raises(UserError, match=r"rows.jsonl:1: reward: is beyond the range"):
        exported(rows, name)
    used = {"response": {"output": [text("5")], "usage": {"output_tokens": huge}}}
    records, _ = exported(write_rows(rows, [row(text("5")) | used]), name)
    assert len(records) == 1
    assert name == "messages" or str(huge) in json.dumps(records)


def test_a_failure_that_is_null_is_none(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"), failure=None)])
    assert len(exported(rows, "messages")[0]) == 1


def test_two_exports_do_not_write_the_same_file(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"))])
    part = tmp_path / "out.jsonl.part"
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"of another export")
        other.flush()
        with pytest.raises(UserError, match=r"another export writes "):
            export([rows], tmp_path / "out.jsonl", "messages", overwrite=True)
        assert part.read_bytes() == b"of another export"
    # What ended before its first checkpoint has nothing to go on with.
    assert export([rows], tmp_path / "out.jsonl", "messages").records == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.jsonl", "rows.jsonl"]


def test_tasks_of_several_files_may_have_the_same_id(tmp_path: Path) -> None:
    found = [
        row(text("5"), reward=1.0, expected_answer="5"),
        row(text("6"), reward=0.0, environment="words", expected_answer="6"),
        row(text("7"), reward=0.5, prompt="What is 3 + 4?", expected_answer="7"),
        row(text("8"), reward=0.25, repeat=1, expected_answer="5"),
    ]
    rows = write_rows(tmp_path / "rows.jsonl", found)
    records, _ = exported(rows, "trl")
    told = [(one["environment"], one["ground_truth"], one["mean_reward"]) for one in records]
    assert told == [("sums", "5", 0.625), ("words", "6", 0.0), ("sums", "7", 0.5)]
    (pair,), _ = exported(rows, "dpo")
    assert (pair["chosen_reward"], pair["rejected_reward"]) == (1.0, 0.25)
    best, _ = exported(rows, "messages", ExportOptions(Selection(per_task=1)))
    assert [one["reward"] for one in best] == [1.0, 0.0, 0.5]


def test_the_best_of_each_task(tmp_path: Path) -> None:
    rewards = [("a", 0.0), ("b", None), ("a", 1.0), ("b", 0.2), ("a", 0.5), ("a", 1.0)]
    found = [
        row(text(f"{task}{number}"), task=task, repeat=number, reward=reward)
        for number, (task, reward) in enumerate(rewards)
    ]
    rows = write_rows(tmp_path / "rows.jsonl", found)
    records, summary = exported(rows, "messages", ExportOptions(Selection(per_task=2)))
    assert [one["messages"][-1]["content"] for one in records] == ["a2", "a5", "b1", "b3"]
    assert summary["left_out"] == {"rollouts that are not among the best of their task": 2}
    records, _ = exported(rows, "messages", ExportOptions(Selection(per_task=1)))
    assert [one["messages"][-1]["content"] for one in records] == ["a2", "b3"]


def test_the_same_answer_twice_is_left_out(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"), repeat=one) for one in range(3)])
    records, summary = exported(rows, "sft", ExportOptions(Selection(distinct=True)))
    assert len(records) == 1
    assert summary["left_out"] == {"duplicates of an earlier rollout": 2}


def test_answers_that_differ_in_the_ids_of_calls_alone_are_the_same(tmp_path: Path) -> None:
    found = [
        row(call("add", '{"a": 1}', f"c{one}"), result(f"c{one}", "1"), text("5"), repeat=one)
        for one in range(3)
    ]
    rows = write_rows(tmp_path / "rows.jsonl", found)
    records, summary = exported(rows, "sft", ExportOptions(Selection(distinct=True)))
    assert len(records) == 1
    assert summary["left_out"] == {"duplicates of an earlier rollout": 2}
    (kept,) = records
    assert kept["messages"][2]["tool_call_id"] == "c0"


def test_what_a_selection_leaves_out(tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [
            row(text("a"), stop_reason="MAX_STEPS"),
            row(text("b"), environment="other"),
            row(text("c"), program={"exit_code": 0}),
            row(text("d"), stop_reason="PROGRAM_TIMEOUT", program={"signal": 9}),
            row(text("e"), stop_reason="PROGRAM_EXITED", program={"exit_code": 3}),
            row(text("f"), stop_reason="PROGRAM_EXITED", program={"signal": 11}),
        ],
    )
    options = ExportOptions(Selection(whole=True, environments=frozenset(["sums"])))
    records, summary = exported(rows, "messages", options)
    assert [one["messages"][-1]["content"] for one in records] == ["c"]
    assert summary["left_out"] == {
        "rollouts cut short by a limit": 2,
        "rollouts of other environments": 1,
        "rollouts whose program ended with an error": 2,
    }


@pytest.mark.parametrize(
    ("name", "key"), [("sft", "messages"), ("openai", "messages"), ("openrlhf-sft", "input")]
)
def test_a_demonstration_ends_with_an_answer(tmp_path: Path, name: str, key: str) -> None:
    # A program that ran again for the second turn answered it in a conversation of its own.
    turn = {"type": "message", "role": "user", "content": "And 3 + 4?"}
    rows = write_rows(tmp_path / "rows.jsonl", [row(text("5"), turn)])
    (record,), summary = exported(rows, name, ExportOptions())
    assert [one["role"] for one in record[key]] == ["user", "assistant"]
    assert summary["losses"]["messages after the last answer of a conversation"] == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_malformed_row_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row(text("5"))) + '\n\n{"reward": 1}\n')
    out = tmp_path / f"out{FORMATS[name].suffixes[0]}"
    with pytest.raises(UserError, match=r"rows\.jsonl:3: responses_create_params: is missing"):
        export([rows], out, name)
    assert not out.exists()
    assert not out.with_name(f"{out.name}.part.db").exists()


@pytest.mark.parametrize(
    ("name", "output", "words"),
    [
        ("parquet", "x.jsonl", "--format parquet writes .parquet files. Use the name x.parquet"),
        ("sft", "x.parquet", "Use the name x.jsonl, or choose --format verl-sft"),
        ("messages", "x.json", "Use the name x.jsonl"),
        ("messages", "x.jsonl.gz", "writes .jsonl files"),
        ("inspect", "x.JSONL", "writes .eval files"),
        ("arrow", "x.parquet", "writes .arrow files"),
        ("hf", "x.jsonl", "--format hf writes a folder. Use a name without .jsonl"),
    ],
)
def test_a_suffix_of_another_format_is_refused(
    rows: Path, tmp_path: Path, name: str, output: str, words: str
) -> None:
    with pytest.raises(UserError) as raised:
        export([rows], tmp_path / output, name)
    assert words in str(raised.value)
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize("output", ["x.ndjson", "x.JSONL", "x", "x.v2"])
def test_a_suffix_that_fits_or_says_nothing_is_taken(
    rows: Path, tmp_path: Path, output: str
) -> None:
    assert export([rows], tmp_path / output, "messages").records


def test_nothing_is_written_over(rows: Path, tmp_path: Path) -> None:
    before = rows.read_bytes()
    with pytest.raises(UserError, match="would be overwritten"):
        export([rows], rows, "messages", overwrite=True)
    link = tmp_path / "link.jsonl"
    link.symlink_to(rows)
    with pytest.raises(UserError, match="would be overwritten"):
        export([rows], link, "messages", overwrite=True)
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    with pytest.raises(UserError, match="already exists"):
        export([rows], out, "messages")
    with pytest.raises(UserError, match="no export to resume"):
        export([rows], tmp_path / "new.jsonl", "messages", resume=True)
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read"):
        export([tmp_path / "none.jsonl"], tmp_path / "new.jsonl", "messages")
    assert (rows.read_bytes(), out.read_text()) == (before, "mine\n")


def test_a_disk_that_takes_no_more_is_one_sentence(rows: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        export([rows], Path("/dev/full/out.jsonl"), "messages")


# When it is not to go on, it stops with more in the file than it has noted, to be killed there.
_EXPORT = """
import sys, time
from pathlib import Path
import gymmesh_data.exports.writing as writing
from gymmesh_data import export
writing._CHECKPOINT_S = 0.0
note, noted = writing.LineFile._note, []

def note_then_wait(self, file, size, crc):
    noted.append(size)
    if len(noted) == 1000:
        file.flush()
        time.sleep(600)
    note(self, file, size, crc)

if len(sys.argv) == 4:
    writing.LineFile._note = note_then_wait
export([Path(sys.argv[1])], Path(sys.argv[2]), sys.argv[3], resume=len(sys.argv) > 4)
"""


def _kept(checkpoint: Path) -> int:
    return int(json.loads(checkpoint.read_text())["bytes"]) if checkpoint.exists() else 0


@pytest.mark.parametrize("name", ["messages", "dpo"])
def test_an_export_that_was_killed_goes_on(tmp_path: Path, name: str) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [
            row(text(f"{one % 2} {one}"), task=f"t{one // 2}", reward=float(one % 2))
            for one in range(4000)
        ],
    )
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    export([rows], whole, name)
    command = [sys.executable, "-c", _EXPORT, str(rows), str(out), name]
    checkpoint = tmp_path / "out.jsonl.part.json"
    process = subprocess.Popen(command)
    while not _kept(checkpoint) and process.poll() is None:  # the test's time-out bounds the wait
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    with pytest.raises(UserError, match="Resume the export with --resume"):
        export([rows], out, name)
    kept = json.loads(checkpoint.read_text())["bytes"]
    assert 0 < kept < whole.stat().st_size
    subprocess.run([*command, "resume"], check=True)
    assert out.read_bytes() == whole.read_bytes()
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"rollout', "is not a line of JSON"),
        (gzip.compress(b"{}", mtime=0), "rows.jsonl:1: .* compressed with gzip; unpack it first"),
        (b"\x28\xb5\x2f\xfd\x00\xff", "rows.jsonl:1: .* compressed with zstd; unpack it first"),
    ],
    ids=["half a row", "gzip", "zstd"],
)
def test_a_refused_file_leaves_nothing_to_overwrite(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out" / "out.jsonl"
    rows.write_bytes(data)
    for _ in range(2):
        with pytest.raises(UserError, match=problem):
            export([rows], out, "messages")
    assert list(out.parent.iterdir()) == []


def test_going_on_with_other_rollouts_is_refused(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [row(text(f"{one}")) for one in range(9)])
    out = tmp_path / "out.jsonl"
    export([rows], out, "messages")
    lines = out.read_bytes().splitlines(keepends=True)
    part, checkpoint = tmp_path / "out.jsonl.part", tmp_path / "out.jsonl.part.json"

    def interrupted(crc: int, size: int) -> None:
        out.unlink(missing_ok=True)
        part.write_bytes(b"".join(lines[:4]))
        checkpoint.write_text(json.dumps({"bytes": size, "crc32": crc}))

    size = sum(map(len, lines[:4]))
    for crc, said in ((1, size), (1, size - 5), (1, 10**6)):
        interrupted(crc, said)
        with pytest.raises(UserError, match="made from other rollouts"):
            export([rows], out, "messages", resume=True)
    # What is said to be there, but is not, is never filled up.
    interrupted(zlib.crc32(b"".join(lines[:4])), size)
    part.write_bytes(b"".join(lines[:3]))
    with pytest.raises(UserError, match="made from other rollouts"):
        export([rows], out, "messages", resume=True)
    checkpoint.write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        export([rows], out, "messages", resume=True)


def test_what_only_the_codec_can_write_is_kept(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    odd = row(text("\ud800 5"), tags={"large": 2**70})
    rows.write_text(json.dumps(odd) + "\n")
    out = tmp_path / "out.jsonl"
    for name, place in (("messages", "messages"), ("sft", "messages")):
        export([rows], out, name, overwrite=True)
        (line,) = out.read_bytes().splitlines()
        record = json.loads(line.decode("utf-8", "surrogatepass"))
        assert record[place][-1]["content"] == "\ud800 5"
        if name == "messages":
            assert record["metadata"]["tags"] == {"large": 2**70}
