"""Groups of gymmesh in the hands of tinker-cookbook's functions, sampled by Tinker's interface."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tinker
import torch
from tinker_cookbook.rl.data_processing import (
    assemble_training_data,
    compute_advantages,
    remove_constant_reward_groups,
)
from tinker_cookbook.rl.rollouts import RolloutErrorCounter
from tinker_cookbook.rl.types import TrajectoryGroup

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_trainers import Generation, RolloutGroup, SamplingParams, TokenBackend
from gymmesh_trainers.tinker import TinkerEngine, TinkerGroups
from tests.handoff.prime_tinker_art.exact import Row, times_trained
from tests.handoff.prime_tinker_art.policies import Answers, group_of
from tests.handoff.trainers.families import FAMILIES, Family
from tests.handoff.trainers.test_append_only import Engine, Hut
from tests.unit.trainers.environments import place_of

QWEN = FAMILIES[0]


class Client:
    """Tinker's sampling client, as far as it is called: what an engine of token ids samples."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.asked: list[tinker.SamplingParams] = []

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        assert num_samples == 1
        self.asked.append(sampling_params)
        made = await self.engine(prompt.to_ints(), SamplingParams())
        sequence = tinker.SampledSequence(
            stop_reason="stop",
            sequence_id=f"s{len(self.asked)}",
            _tokens_list=list(made.token_ids),
            _logprobs_list=list(made.logprobs),
        )
        return tinker.SampleResponse(sequences=[sequence])


def rows_of(groups: list[TrajectoryGroup]) -> tuple[list[Row], list[tinker.Datum]]:
    """The sequences that Tinker trains, by the cookbook's own functions, with their masks."""
    data, _ = assemble_training_data(groups, compute_advantages(groups))
    rows: list[Row] = []
    for datum in data:
        inputs = datum.loss_fn_inputs
        target, mask = inputs["target_tokens"].tolist(), inputs["mask"].tolist()
        rows.append(([datum.model_input.to_ints()[0], *target], [0, *map(int, mask)]))
    return rows, data


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
async def test_the_cookbook_trains_each_sampled_token_once(
    family: Family, append_only: bool
) -> None:
    tokenizer = family.tokenizer()
    engine = Engine(family, tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(one) for one in family.stops]
    backend = TokenBackend(
        tokenizer,
        TinkerEngine(Client(engine)),
        stop_token_ids=stops,
        template=family.kwargs,
        think_tags=True,
    )
    group = await group_of(Hut, backend, 1, append_only=append_only)
    made = TinkerGroups()
    groups = made.of(group)
    rows, data = rows_of(groups)
    calls = list(zip(engine.prompts, engine.outputs, strict=True))
    sampled = sum(len(output) for output in engine.outputs)
    assert times_trained(calls, rows) == [1] * 6
    assert made.counts == {"tokens_sampled": sampled, "tokens_trained": sampled, "tokens_lost": 0}
    for datum in data:
        mask = datum.loss_fn_inputs["mask"].to_torch()
        wanted = torch.where(mask > 0, -0.5, 0.0)
        assert torch.equal(datum.loss_fn_inputs["logprobs"].to_torch(), wanted)
    assert groups[0].get_total_rewards() == [1.0]
    assert groups[0].trajectories_G[0].stop_reason == "tool_stopped"


async def test_each_actor_has_a_group_with_its_own_rewards() -> None:
    tokenizer = QWEN.tokenizer()
    engine = Answers(tokenizer, "no", "is it?", "sure", "maybe", "it is")
    backend = TokenBackend(tokenizer, TinkerEngine(Client(engine)), think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 3)
    root, critic = TinkerGroups().of(group)
    assert root.get_total_rewards() == [0.0, 1.0, 0.0]
    assert critic.get_total_rewards() == [0.25, 0.75]
    rows, data = rows_of([root, critic])
    assert times_trained(engine.calls, rows) == [1] * 5
    trained = []
    for datum in data:
        mask = datum.loss_fn_inputs["mask"].to_torch() > 0
        values = datum.loss_fn_inputs["advantages"].to_torch()
        assert not values[~mask].any()
        trained += values[mask].unique().tolist()
    assert trained == pytest.approx([-1 / 3, 2 / 3, -1 / 3, -0.25, 0.25])


async def test_a_history_that_begins_anew_is_a_datum_of_its_own() -> None:
    tokenizer = QWEN.tokenizer()
    engine = Answers(tokenizer, "one", "two", "three")
    backend = TokenBackend(tokenizer, TinkerEngine(Client(engine)), think_tags=True)
    group = await group_of(place_of("Paid", "Rewriting"), backend, 1)
    rows, _ = rows_of(TinkerGroups().of(group))
    assert len(rows) == 2
    assert times_trained(engine.calls, rows) == [1] * 3


async def test_a_failed_rollout_is_an_error_of_the_group_and_no_reward() -> None:
    tokenizer = QWEN.tokenizer()
    engine = Answers(tokenizer, "sure", RuntimeError("the engine is gone"), "sure", "maybe", "ah")
    backend = TokenBackend(tokenizer, TinkerEngine(Client(engine)), think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 4)
    groups = TinkerGroups().of(group)
    assert sorted(groups[0].get_total_rewards()) == [0.0, 1.0, 1.0]
    assert [one.error_type for one in groups[0].rollout_errors] == ["INTERNAL_FAULT"]
    counter = RolloutErrorCounter()
    for one in groups:
        counter.ingest(one)
    assert counter.get_metrics()["rollout_errors/total"] == 1.0
    assert remove_constant_reward_groups(groups) == groups[:1]
    failed = RolloutGroup(group.task, failed=group.failed)
    assert TinkerGroups().of(failed) == []
    unscored = RolloutGroup(group.task, group.rollouts[:1], unscored=group.rollouts[1:])
    [root] = TinkerGroups().of(unscored)
    assert root.get_total_rewards() == [1.0]
    assert [one.error_type for one in root.rollout_errors] == ["Unscored", "Unscored"]


async def test_tokens_that_were_not_sampled_freely_are_context() -> None:
    tokenizer = QWEN.tokenizer()
    ids = [*tokenizer.encode("sure"), tokenizer.eos_token_id]
    forced = tokens_pb2.ConstrainedSpan(
        first_token=1, tokens=2, constraint=tokens_pb2.CONSTRAINT_FORCED
    )

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation(ids, [-0.5] * len(ids), constrained=[forced])

    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 1)
    made = TinkerGroups()
    [(tokens, mask)], _ = rows_of(made.of(group))
    [sample] = group.rollouts[0].samples
    assert (list(tokens), list(mask)) == (sample.tokens, sample.mask)
    assert mask[-len(ids) :] == [1, 0, 0, *[1] * (len(ids) - 3)]
    assert made.counts["tokens_lost"] == 0


async def test_each_token_has_the_version_of_the_client_that_sampled_it() -> None:
    tokenizer = QWEN.tokenizer()
    answers = Answers(tokenizer, "one", "two", "three")
    policy = TinkerEngine(Client(answers), 3)
    later = Client(answers)

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        call = asyncio.create_task(policy(prompt, params))
        await asyncio.sleep(0)  # the call has begun
        policy.use(later, 4)
        return await call

    group = await group_of(
        place_of("Paid", "Rewriting"), TokenBackend(tokenizer, engine, think_tags=True), 1
    )
    [rollout] = group.rollouts
    spans = [[one.version for one in call.tokens.weights] for call in rollout.message.model_calls]
    assert spans == [[3], [4], [4]]
    [found] = TinkerGroups().of(group)
    assert found.metrics_G[0]["weights/oldest"] == 3
    assert found.metrics_G[0]["weights/newest"] == 4


async def test_what_tinker_has_no_word_for_is_refused() -> None:
    policy = TinkerEngine(Client(None))
    with pytest.raises(ValueError, match="stop: Tinker"):
        await policy([1], SamplingParams(stop=("END",)))
    with pytest.raises(ValueError, match="min_p: Tinker"):
        await policy([1], SamplingParams(min_p=0.1))
    tokenizer = QWEN.tokenizer()

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([*tokenizer.encode("sure"), tokenizer.eos_token_id])

    backend = TokenBackend(tokenizer, engine, think_tags=True)
    group = await group_of(place_of("Debated", "Debate"), backend, 1)
    with pytest.raises(UserError, match="no log probabilities"):
        TinkerGroups().of(group)


async def test_the_parameters_of_a_call_reach_tinker() -> None:
    tokenizer = QWEN.tokenizer()
    client = Client(Answers(tokenizer, "sure"))
    made = await TinkerEngine(client)(
        [1],
        SamplingParams(temperature=0.5, top_k=4, max_tokens=7, seed=9, stop_token_ids=(2, 3)),
    )
    [asked] = client.asked
    assert (asked.temperature, asked.top_k, asked.max_tokens, asked.seed) == (0.5, 4, 7, 9)
    assert asked.stop == [2, 3]
    assert made.distribution == tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
    client.engine = Answers(tokenizer, "sure")
    made = await TinkerEngine(client)([1], SamplingParams())
    assert client.asked[-1].stop is None
    assert made.distribution == tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
