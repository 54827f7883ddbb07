"""The game environment as it is served: sessions, turns, the tool, whole rollouts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environments.game import GameEnvironment
from gymmesh_resource.environments.game.match import Match
from gymmesh_responses import new_message, text_of
from gymmesh_runtime.errors import MeshError
from tests.unit.environments.user_simulator.collected import (
    calls,
    collect,
    of_kind,
    says,
    turn_texts,
)
from tests.unit.resource.served import Served, served, task

USE = "gymmesh_resource.environments.game:GameEnvironment"
EXAMPLES = [
    json.loads(line)
    for line in Path(GameEnvironment().examples_file() or "").read_text().splitlines()
]
PLAY = {"input": [{"role": "user", "content": "Play."}]}


async def say(mesh: Served, session_id: str, text: str) -> resource_pb2.NextTurnResponse:
    return await mesh.turn(session_id, [new_message("assistant", text)])


def perfect(played: Match) -> str:
    """The winning move of a nim game."""
    piles: list[int] = played.game._piles  # type: ignore[attr-defined]
    total = 0
    for stones in piles:
        total ^= stones
    at = next(at for at, stones in enumerate(piles) if stones ^ total < stones)
    return f"{at + 1} {piles[at] - (piles[at] ^ total)}"


def nim_moves(seed: int, level: int) -> list[str]:
    """The winning moves of a whole game."""
    played = Match("nim", level, seed, model_begins=True, max_illegal=3)
    moves = []
    while not played.over:
        moves.append(perfect(played))
        played.play(moves[-1], "")
    return moves


async def test_a_game_turn_by_turn() -> None:
    async with served(GameEnvironment()) as mesh:
        of = task(game="nim", level=2, first="model")
        opened = await mesh.create(of, seed=8)
        opening = text_of(opened.items[0])
        assert "Nim." in opening
        assert "<move>2 3</move>" in opening
        assert opened.multi_turn
        assert not opened.tools
        moves = nim_moves(8, 2)
        for move in moves[:-1]:
            turn = await say(mesh, opened.session_id, f"I take <move>{move}</move>")
            assert turn.reward == 0.0
            assert not turn.done
            assert "Your move." in text_of(turn.items[0])
        turn = await say(mesh, opened.session_id, f"Move: {moves[-1]}")
        assert turn.done
        assert turn.reward == 1.0
        with pytest.raises(MeshError) as caught:
            await say(mesh, opened.session_id, moves[-1])
        assert caught.value.reason_name == "SESSION_STATE"
        verdict = await mesh.verify(opened.session_id, of)
    assert verdict.reward == 1.0
    assert {part.name: part.value for part in verdict.components} == {
        "won": 1.0, "drawn": 0.0, "progress": 1.0,
    }  # fmt: skip


async def test_illegal_moves_are_told_counted_and_bounded() -> None:
    async with served(GameEnvironment(max_illegal=2, illegal_penalty=0.25)) as mesh:
        of = task(game="nim", level=2, first="model")
        opened = await mesh.create(of, seed=8)
        turn = await say(mesh, opened.session_id, "I would rather not say anything about it today.")
        assert "no move was found" in text_of(turn.items[0])
        assert not turn.done
        turn = await say(mesh, opened.session_id, "<move>9 1</move>")
        assert turn.done
        assert "you lose" in text_of(turn.items[0])
        verdict = await mesh.verify(opened.session_id, of)
    assert verdict.reward == 0.0
    assert json.loads(verdict.evidence_json) == {
        "result": "lost", "ended_by": "illegal moves", "moves": 0, "illegal_moves": 2,
    }  # fmt: skip


async def test_turn_rewards_add_up_to_the_verdict() -> None:
    options = GameEnvironment(progress_reward=0.5, illegal_penalty=0.1)
    async with served(options) as mesh:
        about = await mesh.resource.GetEnvironment(resource_pb2.GetEnvironmentRequest(), timeout=60)
        assert about.reward_rule == resource_pb2.REWARD_RULE_INCLUDED
        of = task(game="code_breaker", level=2)
        opened = await mesh.create(of, seed=1)
        rewards = []
        for guess in ("1111", "2222", "3333", "nonsense", "4455", "1236"):
            turn = await say(mesh, opened.session_id, guess)
            rewards.append(turn.reward)
        verdict = await mesh.verify(opened.session_id, of)
    assert len(set(rewards)) > 2
    assert math.fsum(rewards) == pytest.approx(verdict.reward)


async def test_an_unfinished_game_is_judged() -> None:
    async with served(GameEnvironment()) as mesh:
        of = task(game="connect_four")
        opened = await mesh.create(of, seed=1)
        verdict = await mesh.verify(opened.session_id, of)
    assert verdict.reward == 0.0
    assert json.loads(verdict.evidence_json)["result"] == "unfinished"


async def test_moves_by_a_tool() -> None:
    async with served(GameEnvironment(moves_by="tool")) as mesh:
        of = task(game="nim", level=3, first="model")
        opened = await mesh.create(of, seed=4)
        assert [one.function.name for one in opened.tools] == ["move"]
        told = await say(mesh, opened.session_id, "<move>1 1</move>")
        assert "call the tool move" in text_of(told.items[0])
        for wrong in ({}, {"move": ["1"]}):
            reply = await mesh.call(opened.session_id, "move", wrong)
            assert b"llegal move" in reply.text
        assert reply.done  # one by text, two by the tool: three were too many
        reply = await mesh.call(opened.session_id, "move", {"move": "1 1"})
        assert reply.text == b"The game is over."

        opened = await mesh.create(of, seed=4)
        for move in nim_moves(4, 3):
            reply = await mesh.call(opened.session_id, "move", {"move": move})
            assert reply.outcome == rollout_pb2.TOOL_OUTCOME_OK
        assert reply.done
        assert (await mesh.verify(opened.session_id, of)).reward == 1.0


async def test_where_moves_are_written_there_is_no_tool() -> None:
    async with served(GameEnvironment()) as mesh:
        opened = await mesh.create(task(game="nim"))
        reply = await mesh.call(opened.session_id, "move", {"move": "1 1"})
        assert reply.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "game"),
        ({"game": 3}, "game"),
        ({"game": "chess"}, "game"),
        ({"game": "nim", "level": 0}, "level"),
        ({"game": "nim", "level": 4}, "level"),
        ({"game": "nim", "level": "1"}, "level"),
        ({"game": "nim", "level": True}, "level"),
        ({"game": "nim", "level": None}, "level"),
        ({"game": "nim", "first": "me"}, "first"),
        ({"game": "nim", "first": ["model"]}, "first"),
    ],
)
async def test_malformed_rows_are_the_tasks_fault(payload: dict[str, Any], field: str) -> None:
    async with served(GameEnvironment()) as mesh:
        with pytest.raises(MeshError) as caught:
            await mesh.create(task(**payload))
    assert caught.value.reason_name == "TASK_INVALID"
    assert caught.value.metadata["field"] == field


async def test_sessions_of_one_seed_are_alike_and_apart() -> None:
    async with served(GameEnvironment()) as mesh:
        of = task(game="sliding_puzzle", level=3)
        one, other = await mesh.create(of, seed=5), await mesh.create(of, seed=5)
        assert text_of(one.items[0]) == text_of(other.items[0])
        await say(mesh, one.session_id, "no move at all is what I would like to make")
        left, right = await mesh.verify(one.session_id, of), await mesh.verify(other.session_id, of)
    assert json.loads(left.evidence_json)["illegal_moves"] == 1
    assert json.loads(right.evidence_json)["illegal_moves"] == 0


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: row["task_id"])
async def test_example_tasks(row: dict[str, Any]) -> None:
    own = {"task_id", "seed", "responses_create_params"}
    payload = {key: value for key, value in row.items() if key not in own}
    async with served(GameEnvironment()) as mesh:
        opened = await mesh.create(task(**payload), seed=row["seed"])
        assert "Your move." in text_of(opened.items[0])
        assert len(text_of(opened.items[0])) < 500


async def test_a_whole_rollout(tmp_path: Path) -> None:
    row = {"seed": 8, "responses_create_params": PLAY, "game": "nim", "level": 2, "first": "model"}
    answers = [f"<move>{move}</move>" for move in nim_moves(8, 2)]
    events = await collect(
        tmp_path,
        row,
        models={"policy": says(*answers, match="Play.")},
        environment=EnvironmentConfig(use=USE),
    )
    (completed,) = of_kind(events, "completed")
    (verified,) = of_kind(events, "verified")
    assert completed.stop_reason == rollout_pb2.STOP_REASON_ENVIRONMENT_DONE
    assert verified.verification.reward == 1.0
    assert "You took the last stone and win." in turn_texts(events)[-1]


async def test_a_whole_rollout_with_the_tool(tmp_path: Path) -> None:
    row = {"seed": 8, "responses_create_params": PLAY, "game": "nim", "level": 2, "first": "model"}
    answers = [calls("move", move=move) for move in nim_moves(8, 2)]
    events = await collect(
        tmp_path,
        row,
        models={"policy": [{"match": "Play.", "answers": answers}]},
        environment=EnvironmentConfig(use=USE, options={"moves_by": "tool"}),
    )
    (verified,) = of_kind(events, "verified")
    assert verified.verification.reward == 1.0
