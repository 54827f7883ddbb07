"""Which samples a hook hands over, and what it says of the rest."""

from __future__ import annotations

import logging
from array import array
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_resource import Task
from gymmesh_trainers import Rollout
from gymmesh_trainers.hooks import LostTokens


def rollout_of(*calls: tuple[list[int], list[int], str], **components: float) -> Rollout:
    """Calls that begin anew: prompt, output, actor."""
    message = pb.Rollout(rollout_id="ro")
    message.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    verdict = message.verified.verification
    verdict.reward = 1.0
    for name, value in components.items():
        verdict.components.add(name=name, value=value)
    for place, (prompt, output, actor) in enumerate(calls):
        call = message.model_calls.add(call_id=f"c{place}", actor=actor, trainable=True)
        call.tokens.prompt_token_ids = array("i", prompt).tobytes()
        call.tokens.output_token_ids = array("i", output).tobytes()
    return Rollout(message, Task(pb.Task(task_id="t")))


REWRITTEN = (([1], [2, 3], ""), ([9], [4], ""))


def test_a_trainer_with_room_for_one_refuses_to_lose_tokens() -> None:
    lost = LostTokens("refuse", "TRL")
    with pytest.raises(UserError) as said:
        lost.one(rollout_of(*REWRITTEN))
    assert str(said.value) == (
        "rollout ro of task t: TRL can't represent 2 of its 3 sampled tokens (67%): the "
        "rollout has 2 samples, but the trainer accepts 1. Keep the history append-only, use a "
        "trainer that accepts several samples, or accept the loss with lost='warn'"
    )
    assert lost.counts["tokens_sampled"] == 0


def refusal(lost: LostTokens, rollout: Rollout, room: int | None = None) -> str:
    with pytest.raises(UserError) as said:
        lost.all_of_one_reward(rollout, room=room)
    return str(said.value).partition("%): ")[2]


def test_the_refusal_names_the_option_that_makes_room() -> None:
    assert refusal(LostTokens("refuse", "AReaL", "several=True"), rollout_of(*REWRITTEN), 1) == (
        "the rollout has 2 samples, but the trainer accepts 1. Keep the history append-only, set "
        "several=True, or accept the loss with lost='warn'"
    )


def test_an_append_only_history_is_advised_to_nobody_whose_actors_spoke_once() -> None:
    both = rollout_of(([1], [2], ""), ([9], [3], "critic"))
    assert refusal(LostTokens("refuse", "TRL"), both, 1) == (
        "the rollout has 2 samples, but the trainer accepts 1. Use a trainer that accepts several "
        "samples, or accept the loss with lost='warn'"
    )


def test_the_refusal_names_the_actor_with_a_reward_of_its_own() -> None:
    calls = (([1], [2], ""), ([9], [3], "critic"))
    own = (
        "actor 'critic' has its own reward, but the trainer accepts one reward. Use a trainer "
        "that accepts a reward for each actor, or accept the loss with lost='warn'"
    )
    assert refusal(LostTokens("refuse", "AReaL"), rollout_of(*calls, critic=0.25)) == own
    both = refusal(LostTokens("refuse", "TRL"), rollout_of(*REWRITTEN, calls[1], critic=0.25), 1)
    assert both.startswith(
        "the rollout has 3 samples, but the trainer accepts 1; actor 'critic' has its own reward"
    )


def test_or_warns_and_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostTokens("warn", "TRL")
    with caplog.at_level(logging.WARNING):
        sample = lost.one(rollout_of(*REWRITTEN))
    assert sample is not None
    assert sample.tokens == [9, 4]
    assert "can't represent 2 of its 3 sampled tokens (67%)" in caplog.text
    assert lost.counts == {"tokens_sampled": 3, "tokens_trained": 1, "tokens_lost": 2}


def test_samples_that_tokens_allow_to_merge_are_one() -> None:
    lost = LostTokens("refuse", "TRL")
    sample = lost.one(rollout_of(([1], [2, 3], ""), ([1, 2, 3, 7], [4], "")))
    assert sample is not None
    assert sample.mask == [0, 1, 1, 0, 1]
    # So are those of an actor that reads the root agent's tokens and has its reward, either way.
    for calls in [
        (([1], [2], ""), ([1, 2, 7], [4], "critic")),
        (([1], [4], "critic"), ([1, 4, 7], [2], "")),
    ]:
        sample = lost.one(rollout_of(*calls))
        assert sample is not None
        assert sample.mask == [0, 1, 0, 1]
    assert lost.counts["tokens_lost"] == 0


def test_actors_with_rewards_of_their_own_are_not_merged() -> None:
    rollout = rollout_of(([1], [2], ""), ([1, 2, 7], [4], "critic"), critic=0.25)
    with pytest.raises(UserError, match="can't represent 1 of its 2"):
        LostTokens("refuse", "veRL").all_of_one_reward(rollout)
    [sample] = LostTokens("warn", "veRL").all_of_one_reward(rollout)
    assert (sample.actor, sample.tokens) == ("", [1, 2])


def test_a_trainer_that_takes_several_gets_all_the_root_agents_last_at_the_end() -> None:
    calls: list[tuple[list[int], list[int], str]] = [
        ([1], [2], ""), ([9], [3], ""), ([8], [4, 5], "critic")
    ]  # fmt: skip
    lost = LostTokens("refuse", "veRL")
    samples = lost.all_of_one_reward(rollout_of(*calls))
    assert [one.tokens for one in samples] == [[1, 2], [8, 4, 5], [9, 3]]
    assert lost.counts == {"tokens_sampled": 4, "tokens_trained": 4, "tokens_lost": 0}


def test_tokens_beyond_the_longest_completion_are_lost_too() -> None:
    rollout = rollout_of(([1], [2, 3, 4], ""))
    with pytest.raises(UserError, match=r"can't represent 1 of its 3 .*Raise the trainer's comp"):
        LostTokens("refuse", "veRL").all_of_one_reward(rollout, 2)


def test_tokens_whose_prompt_is_unknown_are_lost_too() -> None:
    rollout = rollout_of(([1], [2], ""))
    broken = rollout.message.model_calls.add(call_id="b", trainable=True, parent_call_id="gone")
    broken.tokens.prompt_prefix_tokens = 4
    broken.tokens.output_token_ids = array("i", [3]).tobytes()
    with pytest.raises(UserError, match="allow_token_divergence"):
        LostTokens("refuse", "TRL").one(rollout)


def test_a_rollout_without_tokens_has_no_sample() -> None:
    assert LostTokens("refuse", "TRL").one(rollout_of()) is None


def test_another_word_is_refused() -> None:
    word: Any = "ignore"
    with pytest.raises(ValueError, match="lost: must be 'refuse' or 'warn', not 'ignore'"):
        LostTokens(word, "TRL")
