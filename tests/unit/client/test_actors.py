"""What actors beside the root agent said, from a rollout's events."""

from __future__ import annotations

import struct
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import fold
from gymmesh_client.rollout import RolloutParts, read
from gymmesh_client.rows import actors_of
from gymmesh_responses import new_message
from tests.support.rollouts import answer, completed, make_events, make_task, verdict


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
    judged = verdict(1.0)
    for name, value in (rewards or {}).items():
        judged.verified.verification.components.add(name=name, value=value)
    events = make_events("ro", 1, *bodies, judged, completed(), task=make_task())
    return actors_of(read(RolloutParts.of(fold(events, "ro"))))


def said(conversation: dict[str, Any]) -> list[str]:
    """The texts of a conversation."""
    return [
        part if isinstance(part, str) else part["text"]
        for item in conversation["items"]
        for part in (
            [item["content"]] if isinstance(item["content"], str) else item["content"]
        )
    ]  # fmt: skip


def test_one_agent_alone_has_no_actors() -> None:
    assert not actors(call(1), call(2, parent=1))


def test_conversations_that_begin_anew_are_apart() -> None:
    critic: dict[str, Any] = {"actor": "critic", "detached": True, "trainable": False}
    found = actors(
        call(1), call(2, parent=1, **critic), call(3, parent=1), call(4, parent=3, **critic)
    )
    assert found == {
        "critic": {
            "models": ["critic"],
            "model_calls": 2,
            "trainable": False,
            "conversations": found["critic"]["conversations"],
        }
    }
    first, second = found["critic"]["conversations"]
    assert (said(first), said(second)) == (["ask 2", "say 2"], ["ask 4", "say 4"])
    assert "after" not in first


def test_what_was_said_before_an_actor_began_is_not_said_again() -> None:
    found = actors(
        call(1),
        call(2, "helper", parent=1),
        call(3, "helper", parent=2),
        call(4, "judge", parent=3),
        call(5, "helper", parent=2),
        call(6, parent=1),
    )
    helper, judge = found["helper"], found["judge"]
    assert helper["model_calls"] == 3
    assert [one["after"] for one in helper["conversations"]] == ["c1", "c1"]
    assert [said(one) for one in helper["conversations"]] == [
        ["ask 2", "say 2", "ask 3", "say 3"],
        ["ask 2", "say 2", "ask 5", "say 5"],
    ]
    assert [(one["after"], said(one)) for one in judge["conversations"]] == [
        ("c3", ["ask 4", "say 4"])
    ]


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
