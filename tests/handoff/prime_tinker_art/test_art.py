"""Groups of gymmesh in the hands of ART's own classes and its tokenizer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from art import TrajectoryGroup
from art.preprocessing.tokenize import tokenize_trajectory_groups

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_trainers import Generation, RolloutGroup, SamplingParams, TokenBackend
from gymmesh_trainers.art import ArtGroups, first_difference
from tests.handoff.prime_tinker_art.exact import Row, times_trained
from tests.handoff.prime_tinker_art.policies import Answers, group_of
from tests.handoff.trainers.families import FAMILIES, Family
from tests.handoff.trainers.test_append_only import Engine, Hut
from tests.unit.trainers.environments import place_of

QWEN = FAMILIES[0]
# ART puts a token that the conversation lacks in the place of each answer.
SENTINEL = "zq"


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ([], [], None),
        ([1, 2], [1, 2], None),
        ([1], [1, 2], 1),
        ([1, 2], [1], 1),
        ([1, 3], [2, 3], 0),
    ],
)
def test_the_first_difference(one: list[int], other: list[int], place: int | None) -> None:
    assert first_difference(one, other) == place


def rows_of(tokenizer: Any, groups: list[TrajectoryGroup], **rendering: Any) -> list[Row]:
    """The sequences that ART trains, by its own tokenizer, with their masks."""
    made = tokenize_trajectory_groups(
        tokenizer, groups, False, False, drop_zero_advantage_trajectories=False, **rendering
    )
    return [(one.token_ids, one.assistant_mask) for one in made]


class Fluent(Engine):
    """Writes the answers in the tokens that the tokenizer chooses, as a model mostly does."""

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        text, calls = next(self._answers)
        ids = self._encode(text)
        stop = self._tokenizer.convert_tokens_to_ids(self._family.stops[calls])
        self.prompts.append(prompt)
        self.outputs.append([*ids, stop])
        return Generation([*ids, stop], [-0.5] * (len(ids) + 1))


# Where ART makes the same tokens of a conversation: by the family, and whether histories are
# append-only. The others' templates write around an answer what is not there when it is sampled, or
# refuse the output of a tool behind an answer whose call is text.
EXACT = {
    ("qwen2.5", True), ("qwen2.5", False), ("qwen3", True), ("qwen3", False),
    ("qwen3-no-thinking", False),
}  # fmt: skip


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
async def test_art_trains_each_sampled_token_once_or_the_hook_refuses(
    family: Family, append_only: bool
) -> None:
    tokenizer = family.tokenizer(SENTINEL)
    engine = Fluent(family, tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(one) for one in family.stops]
    backend = TokenBackend(
        tokenizer, engine, stop_token_ids=stops, template=family.kwargs, think_tags=True
    )
    group = await group_of(Hut, backend, append_only=append_only)
    calls = list(zip(engine.prompts, engine.outputs, strict=True))
    sampled = sum(len(output) for output in engine.outputs)
    how = family.kwargs
    refusal = ""
    try:
        ArtGroups(tokenizer, chat_template_kwargs=how).of(group)
    except UserError as error:
        refusal = str(error)
    made = ArtGroups(tokenizer, "warn", chat_template_kwargs=how)
    rows = rows_of(tokenizer, made.of(group), chat_template_kwargs=how)
    times = times_trained(calls, rows)
    if (family.name, append_only) in EXACT:
        assert not refusal
        assert times == [1] * 6
        assert made.counts["tokens_lost"] == 0
    else:
        assert f"of its {sampled} sampled tokens" in refusal
        assert "ART renders the conversation again" in refusal
        assert re.search(r": at token \d+ '.+' became '|, and its tokenizer raised ", refusal)
        assert "append-only" not in refusal
        assert set(times) <= {0, 1}
        assert 0 in times
    trained = sum(sum(mask) for _, mask in rows)
    assert (made.counts["tokens_sampled"], made.counts["tokens_trained"]) == (sampled, trained)


async def test_each_actor_has_a_group_with_its_own_rewards() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    engine = Answers(tokenizer, "no", "is it?", "sure", "maybe", "it is")
    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 3)
    root, critic = ArtGroups(tokenizer).of(group)
    assert [one.reward for one in root] == [0.0, 1.0, 0.0]
    assert [one.reward for one in critic] == [0.25, 0.75]
    assert root.trajectories[0].metrics["format"] == 1.0
    assert times_trained(engine.calls, rows_of(tokenizer, [root, critic])) == [1] * 5
    results = list(tokenize_trajectory_groups(tokenizer, [root, critic], False, False))
    advantages = sorted(one.advantage for one in results)
    assert advantages == pytest.approx([-1 / 3, -1 / 3, -0.25, 0.25, 2 / 3])
    for one in results:
        known = [value for value, on in zip(one.logprobs, one.assistant_mask, strict=True) if on]
        assert known == [-0.25 * (place + 1) for place in range(len(known))]


async def test_a_call_without_tools_is_handed_over_without_tools() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    engine = Answers(tokenizer, "no", "is it?")
    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("ToolDebated", "Untooled"), backend)
    root, critic = ArtGroups(tokenizer).of(group)
    assert times_trained(engine.calls, rows_of(tokenizer, [root, critic])) == [1] * 2
    histories = [one.trajectories[0].additional_histories[0] for one in (root, critic)]
    assert [bool(one.tools) for one in histories] == [True, False]


async def test_a_history_that_begins_anew_is_another_history_of_the_trajectory() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    engine = Answers(tokenizer, "one", "two", "three")
    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Paid", "Rewriting"), backend)
    [found] = ArtGroups(tokenizer).of(group)
    [trajectory] = found
    assert len(trajectory.additional_histories) == 2
    assert [one["content"] for one in trajectory.messages_and_choices] == [
        "Be brief.", "What is in there?",
    ]  # fmt: skip
    assert times_trained(engine.calls, rows_of(tokenizer, [found])) == [1] * 3


async def test_a_failed_rollout_is_an_exception_of_the_group_and_no_reward() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    engine = Answers(tokenizer, "sure", RuntimeError("the engine is gone"), "sure", "maybe", "ah")
    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 4)
    root, critic = ArtGroups(tokenizer).of(group)
    assert [one.reward for one in root] == [1.0, 1.0, 0.0]
    [failed] = root.exceptions
    assert "INTERNAL_FAULT" in failed.message
    assert not critic.exceptions  # counted once
    nobody = RolloutGroup(group.task, failed=group.failed)
    assert ArtGroups(tokenizer).of(nobody) == []
    unscored = RolloutGroup(group.task, group.rollouts[:1], unscored=group.rollouts[1:])
    [root] = ArtGroups(tokenizer).of(unscored)
    assert [one.reward for one in root] == [1.0]
    assert ["has no verdict" in one.message for one in root.exceptions] == [True, True]


async def test_tokens_that_were_not_sampled_freely_are_refused() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    ids = [*tokenizer.encode("sure"), tokenizer.eos_token_id]
    forced = tokens_pb2.ConstrainedSpan(
        first_token=1, tokens=2, constraint=tokens_pb2.CONSTRAINT_FORCED
    )

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation(ids, [-0.5] * len(ids), constrained=[forced])

    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend)
    with pytest.raises(UserError, match=f"ART can't represent {len(ids) - 2} of its") as said:
        ArtGroups(tokenizer).of(group)
    assert re.search(r"token \d+, at 'ure.*', was not sampled freely", str(said.value))


async def test_log_probabilities_and_versions() -> None:
    tokenizer = QWEN.tokenizer(SENTINEL)
    ids = [*tokenizer.encode("sure"), tokenizer.eos_token_id]

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation(ids, [-0.5] * len(ids) if scored else (), weights=((4, 0), (5, 2)))

    backend = TokenBackend(tokenizer, engine, think_tags=True)
    scored = True
    [found] = ArtGroups(tokenizer).of(await group_of(place_of("Debated", "Debate"), backend))
    [trajectory] = found
    assert trajectory.initial_policy_version == 4
    assert trajectory.final_policy_version == 5
    scored = False
    group = await group_of(place_of("Debated", "Debate"), backend)
    with pytest.raises(UserError, match="no log probabilities"):
        ArtGroups(tokenizer).of(group)
