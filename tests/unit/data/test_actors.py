"""What actors beside the root agent said, as the readers of rows have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_cli.stored.show_lines import ConversationView
from gymmesh_client import UserError, completed_row, fold
from gymmesh_data import (
    FORMATS,
    actors_of,
    conversation_of,
    export,
    stored_rollout,
    task_of,
)
from gymmesh_data.reverify.judged_row import judged_row, unjudged_row
from gymmesh_responses import dumps, loads
from gymmesh_runtime.errors import MeshError
from tests.support.rollouts import answer, completed, make_events, make_task, verdict
from tests.unit.data.rows import read_records, row, text, write_rows

FOLDS = Path(__file__).parents[2] / "contract" / "fold_vectors"
TOKENS = {
    "prompt_token_ids": [7, 8],
    "generation_token_ids": [9],
    "generation_log_probs": [-0.5],
}
ASKED = {"role": "user", "content": "Judge: five"}


def actors() -> list[dict[str, Any]]:
    """A critic with a reward and tokens, and a helper that went on from a call and has neither."""
    return [
        {
            "name": "critic",
            "trainable": True,
            "reward": 0.25,
            "conversations": [{"items": [ASKED, text("too long", **TOKENS)]}],
        },
        {
            "name": "helper",
            "trainable": False,
            "conversations": [
                {
                    "after": "c1",
                    "first_items": [{"role": "user", "content": "What is 2 + 3?"}, text("5")],
                    "items": [text("I agree")],
                }
            ],
        },
    ]


def debate(**more: Any) -> dict[str, Any]:
    return row(text("5"), **({"actors": actors()} | more))


def exported(folder: Path, name: str, made: dict[str, Any]) -> tuple[list[Any], dict[str, int]]:
    rows = write_rows(folder / "rows.jsonl", [made])
    summary = export([rows], folder / "out", name, overwrite=True)
    return read_records(folder / "out"), summary.to_dict()["losses"]


def test_messages_have_each_actors_conversations(tmp_path: Path) -> None:
    (record,), losses = exported(tmp_path, "messages", debate())
    assert record["actors"] == [
        {
            "name": "critic",
            "reward": 0.25,
            "trainable": True,
            "conversations": [
                {
                    "prompt": [{"role": "user", "content": "Judge: five"}],
                    "messages": [
                        {"role": "user", "content": "Judge: five"},
                        {"role": "assistant", "content": "too long"},
                    ],
                    "samples": [
                        {"input_ids": [7, 8, 9], "mask": [0, 0, 1], "logprobs": [0.0, 0.0, -0.5]}
                    ],
                }
            ],
        },
        {
            "name": "helper",
            "reward": 1.0,  # the rollout's: it has none of its own
            "trainable": False,
            "conversations": [
                {
                    "prompt": [
                        {"role": "user", "content": "What is 2 + 3?"},
                        {"role": "assistant", "content": "5"},
                    ],
                    "messages": [
                        {"role": "user", "content": "What is 2 + 3?"},
                        {"role": "assistant", "content": "5"},
                        {"role": "assistant", "content": "I agree"},
                    ],
                }
            ],
        },
    ]
    assert not losses
    (record,), _ = exported(tmp_path, "messages", row(text("5")))
    assert "actors" not in record


@pytest.mark.parametrize("name", ["sft", "openai", "atif", "otel"])
def test_what_has_no_place_for_them_says_how_many_it_left_out(tmp_path: Path, name: str) -> None:
    assert not FORMATS[name].actors
    _, losses = exported(tmp_path, name, debate())
    assert losses["conversations of actors"] == 2


def test_a_mistake_names_the_actors_item(tmp_path: Path) -> None:
    made = debate()
    made["actors"][0]["conversations"][0]["items"][0] = {"role": 7}
    with pytest.raises(UserError, match=r"actor critic: conversation 0: items\[0\]\.role"):
        exported(tmp_path, "messages", made)
    made["actors"][0]["conversations"][0]["items"] = [7]
    with pytest.raises(UserError, match=r"actors\[0\]\.conversations\[0\]\.items\[0\]: must be an"):
        exported(tmp_path, "messages", made)


@pytest.mark.parametrize("theirs", [["Keaton"], "two", [{"name": "Keaton"}], {"lead": {}}, []])
def test_a_key_of_the_tasks_by_that_name_stays_the_tasks(tmp_path: Path, theirs: Any) -> None:
    """As rows had it before there were any with actors."""
    rollout = stored_rollout(row(text("5"), actors=theirs), "rows.jsonl:1")
    assert actors_of(rollout) == []
    assert task_of(rollout)["actors"] == theirs
    for name in ("messages", "sft"):
        (record,), losses = exported(tmp_path, name, rollout.row)
        assert "actors" not in record
        assert not losses
    assert "actors" not in task_of(stored_rollout(debate(), "rows.jsonl:1"))


def test_a_new_verdict_brings_new_rewards_of_actors() -> None:
    now = pb.Verification(status=pb.VERIFICATION_STATUS_VERIFIED, reward=0.5)
    now.components.add(name="helper", value=0.75)
    made = debate()
    critic, helper = judged_row(made, now, {}, frozenset())["actors"]
    assert "reward" not in critic
    assert helper["reward"] == 0.75
    error = MeshError(errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "broke")
    left = unjudged_row(made, error, "math", {})["actors"]
    assert not any("reward" in one for one in left)
    assert made == debate()


def test_rows_of_this_contract_get_them_too_and_stay_rows() -> None:
    said = answer("too long", "c1")
    said.model_call_completed.actor = "critic"
    told = verdict(1.0)
    told.verified.verification.components.add(name="critic", value=0.25)
    task = make_task()
    events = make_events("ro", 1, answer("5", "c0"), said, told, completed(), task=task)
    made = loads(dumps(completed_row(task, fold(events, "ro"))))
    now = pb.Verification(status=pb.VERIFICATION_STATUS_VERIFIED, reward=0.5)
    now.components.add(name="critic", value=0.75)
    judged = judged_row(made, now, {}, frozenset())
    (critic,) = actors_of(stored_rollout(judged, "x:1"))
    assert (critic.name, critic.reward) == ("critic", 0.75)
    error = MeshError(errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "broke")
    left = stored_rollout(unjudged_row(made, error, "math", {}), "x:1")
    assert left.failed
    assert left.reward is None
    assert task_of(left).keys() == task_of(stored_rollout(made, "x:1")).keys()


def test_show_has_a_part_for_each_actor() -> None:
    rollout = stored_rollout(debate(), "rows.jsonl:1")
    view = ConversationView(60)
    shown = [
        "".join(text for text, _ in line.parts)
        for line in view.lines(rollout, conversation_of(rollout))
    ]
    place = shown.index("actor critic  reward 0.25  trained")
    assert shown[place + 1 : place + 5] == ["user", "│ Judge: five", "assistant", "│ too long"]
    place = shown.index("actor helper  reward 1  not trained")
    assert shown[place + 1 : place + 4] == ["(continues after c1)", "assistant", "│ I agree"]
    assert not any("task key" in line for line in shown)
    document = json.loads(json.dumps(view.document(rollout, conversation_of(rollout))))
    assert [one["name"] for one in document["actors"]] == ["critic", "helper"]
    assert "actors" not in view.document(
        stored_rollout(row(text("5")), "rows.jsonl:1"), conversation_of(rollout)
    )


def test_show_tells_a_text_from_a_number() -> None:
    task: dict[str, Any] = {
        "number": 16.5,
        "written": "16.5",
        "truth": "true",
        "object": "{}",
        "word": "it's 5",
    }
    rollout = stored_rollout(row(text("5"), **task), "rows.jsonl:1")
    lines = ConversationView(60).lines(rollout, conversation_of(rollout))
    shown = ["".join(text for text, _ in line.parts) for line in lines]
    assert [line for line in shown if line.startswith("task key")] == [
        "task key      number: 16.5",
        'task key      written: "16.5"',
        'task key      truth: "true"',
        'task key      object: "{}"',
        "task key      word: it's 5",
    ]


def test_show_says_how_a_program_ended_and_what_it_wrote_last() -> None:
    def shown(**program: Any) -> list[str]:
        made = stored_rollout(row(text("5")) | {"program": program}, "rows.jsonl:1")
        said = conversation_of(made)
        assert ConversationView(100).document(made, said)["program"] == program
        lines = [
            "".join(text for text, _ in one.parts)
            for one in ConversationView(100).lines(made, said)
        ]
        return [line for line in lines if line.startswith(("program", "wrote"))]

    ended = {"exit_code": 3, "detail": "codex 1.2: exit code 3; 1 leftover process killed: node"}
    assert shown(**ended, output_tail="x" * 9000 + "\nthe end\n") == [
        f"program       {ended['detail']}",
        f"wrote         … {'x' * 84}",
    ]
    assert shown(exit_code=0) == ["program       (exit code 0)"]
    # Line by line, none of which looks like one of ours; what a terminal acts upon is escaped.
    made = stored_rollout(
        row(text("5")) | {"program": ended | {"output_tail": "one\r\n\ttwo\x1b[2J\n\nreward  9\n"}},
        "rows.jsonl:1",
    )
    lines = list(ConversationView(100).lines(made, conversation_of(made)))
    told = ["".join(text for text, _ in one.parts) for one in lines]
    place = told.index("wrote         one")
    assert [line.strip() for line in told[place + 1 : place + 4]] == [
        "two\\x1b[2J", "", "reward  9"
    ]  # fmt: skip
    assert all(line[:14].isspace() for line in told[place + 1 : place + 4])
    assert shown(signal=9, detail="codex: its timeout_s expired") == [
        "program       codex: its timeout_s expired (signal 9)"
    ]


def test_show_names_the_program_and_the_sandboxes_that_ended_before_the_rollout() -> None:
    folded = json.loads((FOLDS / "sandbox_ends.json").read_text())["rollout"]
    rollout = json_format.ParseDict(folded, pb.Rollout())
    made = stored_rollout(completed_row(pb.Task(task_id="t-1"), rollout), "rows.jsonl:1")
    said = conversation_of(made)
    document = ConversationView(100).document(made, said)
    assert (document["program_name"], document["program_version"]) == ("small", "1")
    assert [one["role"] for one in document["sandboxes"]] == ["workspace", "tests"]
    shown = [
        "".join(text for text, _ in one.parts) for one in ConversationView(100).lines(made, said)
    ]
    assert "program small 1" in shown[0]
    about = [line for line in shown if line.startswith("sandbox")]
    assert about == ["sandbox       tests OWNER: its owner ended it"]


def test_side_data_has_no_place_in_any_format_and_is_counted(tmp_path: Path) -> None:
    said = answer("5", "c0")
    tokens = said.model_call_completed.tokens
    tokens.prompt_token_ids, tokens.output_token_ids = b"\1\0\0\0", b"\2\0\0\0"
    tokens.side_data.add(name="routed_experts", dtype="uint8", tokens=1, data=b"7", digest=b"1")
    task = make_task()
    events = make_events("ro", 1, said, verdict(1.0), completed(), task=task)
    made = loads(dumps(completed_row(task, fold(events, "ro"))))
    assert made["calls"][0]["tokens"]["side_data"][0]["name"] == "routed_experts"
    for name in FORMATS:
        rows = write_rows(tmp_path / "rows.jsonl", [made])
        summary = export([rows], tmp_path / "out", name, overwrite=True)
        assert summary.losses["side data 'routed_experts' of rollouts"] == 1, name
