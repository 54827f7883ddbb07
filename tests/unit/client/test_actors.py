"""What a row has of actors beside the root agent, mostly in NeMo Gym's form."""

from __future__ import annotations

import struct
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import FailedAttempt, completed_row, failure_row, fold
from gymmesh_responses import dumps, loads, new_message
from gymmesh_rows import nemo_row, read_row
from tests.support.rollouts import answer, completed, failed, make_events, make_task, verdict


def call(number: int, actor: str = "", parent: int = 0, **more: Any) -> pb.RolloutEvent:
    """Model call `number`: it is told `ask N`, and answers `say N`."""
    event = answer(f"say {number}", f"c{number}")
    made = event.model_call_completed
    made.actor, made.parent_call_id = actor, f"c{parent}" if parent else ""
    made.model = actor or "policy"
    made.trainable, made.detached = more.get("trainable", True), more.get("detached", False)
    made.context_items.append(new_message("user", f"ask {number}"))
    if tokens := more.get("tokens"):
        made.tokens.prompt_token_ids = struct.pack("<1i", 7)
        made.tokens.output_token_ids = struct.pack(f"<{len(tokens)}i", *tokens)
        made.tokens.logprobs = struct.pack(f"<{len(tokens)}f", *[-0.5] * len(tokens))
    return event


def actors(*bodies: pb.RolloutEvent, rewards: dict[str, float] | None = None) -> dict[str, Any]:
    """By name, what the row says of each."""
    judged = verdict(1.0)
    for name, value in (rewards or {}).items():
        judged.verified.verification.components.add(name=name, value=value)
    task = make_task()
    events = make_events("ro", 1, *bodies, judged, completed(), task=task)
    row = nemo_row(read_row(dumps(completed_row(task, fold(events, "ro")))))
    found = row.get("actors", [])
    assert ("actors" in row) == bool(found)
    assert [one["name"] for one in found] == sorted(one["name"] for one in found)
    return {one["name"]: one for one in found}


def said(items: list[dict[str, Any]]) -> list[str]:
    """The texts of a conversation's items."""
    return [
        part if isinstance(part, str) else part["text"]
        for item in items
        for part in (
            [item["content"]] if isinstance(item["content"], str) else item["content"]
        )
    ]  # fmt: skip


def test_the_row_of_one_agent_alone_has_no_actors() -> None:
    assert not actors(call(1), call(2, parent=1))


def test_conversations_that_begin_anew_are_apart() -> None:
    critic: dict[str, Any] = {"actor": "critic", "detached": True, "trainable": False}
    found = actors(
        call(1), call(2, parent=1, **critic), call(3, parent=1), call(4, parent=3, **critic)
    )
    assert found == {
        "critic": {
            "name": "critic",
            "models": ["critic"],
            "model_calls": 2,
            "trainable": False,
            "usage": {
                "input_tokens": 20,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 6,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 26,
            },
            "conversations": found["critic"]["conversations"],
        }
    }
    first, second = found["critic"]["conversations"]
    assert set(first) == set(second) == {"items"}
    assert (said(first["items"]), said(second["items"])) == (
        ["ask 2", "say 2"],
        ["ask 4", "say 4"],
    )


def test_what_an_actor_read_before_it_began_stands_apart() -> None:
    found = actors(
        call(1),
        call(2, "helper", parent=1),
        call(3, "helper", parent=2),
        call(4, "judge", parent=3),
        call(5, "helper", parent=2),
        call(6, "writer"),
        call(7, parent=1),
    )
    helper, judge, writer = found["helper"], found["judge"], found["writer"]
    assert helper["model_calls"] == 3
    told = ["What is 2+3?", "ask 1", "say 1"]
    assert [
        (one["after"], said(one["first_items"]), said(one["items"]))
        for one in helper["conversations"]
    ] == [
        ("c1", told, ["ask 2", "say 2", "ask 3", "say 3"]),
        ("c1", told, ["ask 2", "say 2", "ask 5", "say 5"]),
    ]
    (only,) = judge["conversations"]
    assert only["after"] == "c3"
    assert said(only["first_items"]) == [*told, "ask 2", "say 2", "ask 3", "say 3"]
    assert said(only["items"]) == ["ask 4", "say 4"]
    (only,) = writer["conversations"]
    assert "after" not in only
    assert said(only["first_items"]) == ["What is 2+3?"]
    assert said(only["items"]) == ["ask 6", "say 6"]


def test_an_actor_has_the_reward_of_its_name_and_the_tokens_that_were_captured() -> None:
    found = actors(
        call(1),
        call(2, "white", detached=True, tokens=[5, 6]),
        call(3, "black", detached=True),
        rewards={"white": 0.25, "brief": 1.0},
    )
    assert found["white"]["reward"] == 0.25
    assert "reward" not in found["black"]
    asked, answered = found["white"]["conversations"][0]["items"]
    assert "generation_token_ids" not in asked
    assert (answered["prompt_token_ids"], answered["generation_token_ids"]) == ([7], [5, 6])


def test_tokens_stand_once_and_with_who_sampled_them() -> None:
    found = actors(
        call(1, tokens=[1]),
        call(2, "player", parent=1, tokens=[2]),
        call(3, "player", parent=2, tokens=[3]),
        call(4, "player", parent=2, tokens=[4]),
    )
    sampled = [
        [item.get("generation_token_ids") for item in one["first_items"] + one["items"]]
        for one in found["player"]["conversations"]
    ]
    nothing = [None] * 3
    assert sampled == [
        [*nothing, None, [2], None, [3]],
        [*nothing, None, None, None, [4]],
    ]


def sampled(items: list[dict[str, Any]]) -> list[Any]:
    """The sampled ids of a conversation's items that have some."""
    return [one["generation_token_ids"] for one in items if "generation_token_ids" in one]


def row_of(*bodies: pb.RolloutEvent) -> dict[str, Any]:
    task = make_task()
    events = make_events("ro", 1, *bodies, verdict(1.0), completed(), task=task)
    return nemo_row(read_row(dumps(completed_row(task, fold(events, "ro")))))


def test_tokens_stand_with_what_is_to_be_learned_from_alone() -> None:
    frozen = call(2, parent=1, tokens=[2], trainable=False)
    frozen.model_call_completed.tokens.weights.add(version=900)
    learned = call(5, parent=4, tokens=[5])
    learned.model_call_completed.tokens.weights.add(version=4)
    row = row_of(
        call(1, tokens=[1]),
        frozen,
        call(3, "critic", parent=2, tokens=[3]),
        call(4, "critic", parent=3, tokens=[4], trainable=False),
        learned,
    )
    assert sampled(row["response"]["output"]) == [[1], [5]]
    assert sampled(row["actors"][0]["conversations"][0]["items"]) == [[3]]
    assert row["metadata"]["weights_versions"] == [4]


def test_tokens_of_actors_without_a_root_agent_stand_once() -> None:
    row = row_of(
        call(1, "white", detached=True, tokens=[1]),
        call(2, "black", detached=True, tokens=[2], trainable=False),
    )
    assert said(row["response"]["output"]) == ["ask 2", "say 2"]
    assert sampled(row["response"]["output"]) == []
    found = {one["name"]: sampled(one["conversations"][0]["items"]) for one in row["actors"]}
    assert found == {"black": [[2]], "white": [[1]]}


def test_the_row_of_a_failed_rollout_has_what_actors_said_before() -> None:
    task = make_task()
    bodies = [call(1), call(2, "critic", detached=True), failed()]
    rollout = fold(make_events("ro", 1, *bodies, task=task), "ro")
    row = failure_row(task, FailedAttempt(rollout.failed.failure, rollout))
    (critic,) = row["actors"]
    assert "reward" not in critic
    (conversation,) = read_row(dumps(row)).actor_conversations("critic")
    (made,) = conversation.calls
    assert said([loads(bytes(item)) for item in made.items]) == ["ask 2", "say 2"]


def test_a_tasks_own_key_of_this_name_is_kept() -> None:
    task = make_task(actors=["Keaton"])
    bodies = [call(1), call(2, "critic", detached=True), verdict(1.0, actors=2), completed()]
    row = completed_row(task, fold(make_events("ro", 1, *bodies, task=task), "ro"))
    assert [one["name"] for one in row["actors"]] == ["critic"]
    assert row["task_extras"] == {"actors": ["Keaton"]}
