"""AReaL trains each sampled token once, with its reward: in its own executor, engine and groups,
behind a small SGLang server. Its own actor computes the advantages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from areal.api.cli_args import (
    GenerationHyperparameters,
    InferenceEngineConfig,
    NormConfig,
    PPOActorConfig,
)
from areal.engine.sglang_remote import RemoteSGLangEngine
from areal.infra import check_trajectory_format
from areal.trainer.ppo.actor import PPOActor
from transformers import AutoTokenizer

from gymmesh_client import UserError
from gymmesh_trainers.areal import GymmeshWorkflow
from tests.handoff.slime_areal.environments import debated
from tests.handoff.slime_areal.router import WORDS, Facts, Router, sampled, trained
from tests.handoff.trainers.families import Family

ENVIRONMENTS: Final = Path(__file__).parent / "environments.py"
NAME: Final = "gymmesh_trainers.areal.GymmeshWorkflow"
KEYS: Final = {"input_ids", "loss_mask", "logprobs", "versions", "attention_mask", "rewards"}
Engine = Callable[[Router], Any]


@pytest.fixture
def engine() -> Iterator[Engine]:
    """AReaL's engine at a server, with weights of version 3."""
    made: list[Any] = []

    def at(router: Router) -> Any:
        config = InferenceEngineConfig(
            backend="sglang:d1", max_concurrent_rollouts=16, consumer_batch_size=4,
            max_head_offpolicyness=0, check_trajectory_format=True, setup_timeout=60,
        )  # fmt: skip
        found = RemoteSGLangEngine(config)
        found.initialize(addr=router.address, train_data_parallel_size=1)
        found.set_version(3)
        made.append(found)
        return found

    yield at
    for one in made:
        one.destroy()


@pytest.fixture
def router(qwen: str) -> Iterator[Router]:
    with Router(AutoTokenizer.from_pretrained(qwen)) as made:
        yield made


def options(folder: str, environment: Any = "Counting", **more: Any) -> dict[str, Any]:
    place = f"{ENVIRONMENTS}:{environment}" if isinstance(environment, str) else environment
    gconfig = GenerationHyperparameters(n_samples=4, max_new_tokens=512, max_tokens=16_384)
    return {"environment": place, "gconfig": gconfig, "tokenizer": folder} | more


def rows(*prompts: str) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": one}]} for one in prompts]


def trained_tokens(batch: list[dict[str, Any]]) -> Counter[Facts]:
    found: Counter[Facts] = Counter()
    for group in batch:
        names = ("input_ids", "loss_mask", "logprobs", "versions", "attention_mask")
        for tokens, mask, logprobs, versions, attended in zip(
            *(group[name].tolist() for name in names), strict=True
        ):
            length = sum(attended)
            assert not any(mask[length:])
            found += trained(tokens[:length], mask[:length], logprobs, versions)
            # What was not sampled has no version, and no log probability.
            behind = zip(mask, logprobs, versions, strict=True)
            assert {one[1:] for one in behind if not one[0]} <= {(0.0, -1), (0.0, 0)}
    return found


def actor(**norm: Any) -> PPOActor:
    config = PPOActorConfig(
        experiment_name="e", trial_name="t", path="", kl_ctl=0.0, adv_norm=None,
        reward_norm=NormConfig(**norm) if norm else None, reward_bias=0.0, reward_scaling=1.0,
        use_decoupled_loss=False, recompute_logprob=False, mask_no_eos_with_zero=False,
    )  # fmt: skip
    return PPOActor(config, SimpleNamespace())


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
def test_every_sampled_token_is_trained_once(
    family: Family, folder: str, engine: Engine, append_only: bool
) -> None:
    more = {
        "several": True,
        "settings": {"append_only": append_only},
        "backend": {"template": family.kwargs},
    }
    with Router(AutoTokenizer.from_pretrained(folder)) as router:
        batch = engine(router).rollout_batch(
            rows("Count.", "Count again."), NAME, options(folder, **more), group_size=2
        )
    assert len(router.calls) == 4 * len(WORDS)
    assert trained_tokens(batch) == sampled(router.calls)
    for group in batch:
        assert set(group) == KEYS
        assert check_trajectory_format(group)
        assert set(group["rewards"].tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
def test_with_a_row_for_each_rollout_every_token_is_trained_or_it_is_rejected(
    family: Family,
    folder: str,
    engine: Engine,
    append_only: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    more = {"settings": {"append_only": append_only}, "backend": {"template": family.kwargs}}
    with Router(AutoTokenizer.from_pretrained(folder)) as router:
        batch = engine(router).rollout_batch(rows("Count."), NAME, options(folder, **more))
    if batch:
        assert trained_tokens(batch) == sampled(router.calls)
    else:
        assert not router.appends()
        assert "AReaL can't represent" in capfd.readouterr().out


def test_with_a_row_for_each_rollout_areals_groups_are_those_of_the_tasks(
    router: Router, qwen: str, engine: Engine
) -> None:
    batch = engine(router).rollout_batch(
        rows("Count.", "Count again."), NAME, options(qwen), group_size=4
    )
    assert [len(one["rewards"]) for one in batch] == [4, 4]
    assert trained_tokens(batch) == sampled(router.calls)
    rewards = [one["rewards"].clone() for one in batch]
    level = {"mean_level": "group", "std_level": None, "group_size": 4}
    for group, given in zip(actor(**level).compute_advantages(batch), rewards, strict=True):
        # AReaL moves the mask one place to the left, to the token that predicts.
        for advantages, mask, reward in zip(
            group["advantages"], group["loss_mask"], given, strict=True
        ):
            assert sorted(set(advantages[mask.bool()].tolist())) == [reward.item() - 0.5]


def test_a_failed_rollout_trains_nothing_and_keeps_its_place_in_the_group(
    router: Router, qwen: str, engine: Engine
) -> None:
    batch = engine(router).rollout_batch(
        rows("Count."), NAME, options(qwen, "Breaking", settings={"max_attempts": 1}), group_size=4
    )
    (group,) = batch
    assert sorted(group["rewards"].tolist()) == [0.5, 0.75, 0.75, 1.0]
    counts = group["loss_mask"].sum(dim=1)
    assert ((counts == 0) == (group["rewards"] == 0.75)).all()
    assert trained_tokens(batch) == sampled(router.right())


def test_a_group_without_any_reward_is_rejected(router: Router, qwen: str, engine: Engine) -> None:
    here = engine(router)
    for _ in range(2):  # the second one ends with seven
        batch = here.rollout_batch(
            rows("Count."), NAME, options(qwen, "Breaking", settings={"max_attempts": 1})
        )
    assert batch == []
    counts = here.workflow_executor.staleness_manager.get_stats()
    assert (counts.accepted, counts.rejected) == (1, 1)


def test_a_call_that_new_weights_interrupt_has_both_versions(
    router: Router, qwen: str, engine: Engine
) -> None:
    here = engine(router)
    router.interrupts = 1
    router.on_interrupt = lambda: here.set_version(4)
    batch = here.rollout_batch(rows("Count."), NAME, options(qwen), group_size=1)
    (group,) = batch
    found = trained_tokens(batch)
    assert Counter({one[:2]: count for one, count in found.items()}) == Counter(
        {one[:2]: count for one, count in sampled(router.calls).items()}
    )
    assert set(group["versions"][group["loss_mask"].bool()].tolist()) <= {3, 4}


def test_an_actor_with_its_own_reward_is_rejected_with_an_error(
    router: Router, qwen: str, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    workflow = GymmeshWorkflow(**options(qwen, debated()))
    batch = engine(router).rollout_batch(rows("Debate."), workflow)
    assert batch == []
    said = capfd.readouterr().out  # AReaL's log of errors
    assert "AReaL can't represent" in said
    assert "actor 'critic' has its own reward" in said


def test_lost_tokens_can_be_accepted(router: Router, qwen: str, engine: Engine) -> None:
    accepted = options(qwen, settings={"append_only": False}, lost="warn")
    (group,) = engine(router).rollout_batch(rows("Count."), NAME, accepted, group_size=2)
    trained_here = trained_tokens([group])
    assert trained_here < sampled(router.calls)
    assert 0 < sum(trained_here.values()) < sum(sampled(router.calls).values())


def test_workflows_of_one_configuration_share_a_mesh(qwen: str) -> None:
    one, two = (GymmeshWorkflow(**options(qwen)) for _ in range(2))
    other = GymmeshWorkflow(**options(qwen, settings={"max_attempts": 1}))
    assert one._place is two._place
    assert one._place is not other._place


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"params": {"temperature": 0.2}}, "settings: params: temperature: AReaL samples with the"),
        ({"repeat": 3}, "there is no option 'repeat'; did you mean 'repeats'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    qwen: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises((UserError, TypeError), match=said):
        GymmeshWorkflow(**options(qwen, settings=settings))


async def test_a_task_with_a_seed_is_refused(qwen: str) -> None:
    workflow = GymmeshWorkflow(**options(qwen))
    with pytest.raises(UserError, match="seed"):
        await workflow.arun_episode(None, {"task": {"prompt": "Count.", "seed": 1}})
