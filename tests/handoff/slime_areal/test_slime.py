"""slime trains each sampled token once, with its reward: in its own rollout loop, behind a small
SGLang router.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import torch
from slime.rollout.base_types import call_rollout_fn
from slime.rollout.filter_hub.base_types import call_dynamic_filter
from slime.rollout.sglang_rollout import generate_rollout
from slime.utils.dp_schedule import build_dp_schedule
from slime.utils.types import Sample
from transformers import AutoTokenizer

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_resource import Task
from gymmesh_trainers import Rollout
from gymmesh_trainers.hooks import LostTokens
from gymmesh_trainers.slime import GymmeshGenerate, rewards_differ
from gymmesh_trainers.slime.samples import samples_of_all_actors
from tests.handoff.slime_areal.environments import debated
from tests.handoff.slime_areal.router import SLOW, WORDS, Router, experts, sampled
from tests.handoff.slime_areal.slime_run import (
    MODULE,
    arguments,
    closed,
    rolled_out,
    rows,
    trained_tokens,
    training_data,
)
from tests.handoff.trainers.families import Family

ENVIRONMENTS: Final = Path(__file__).parent / "environments.py"
DIVIDED: Final = 0.5 / (math.sqrt(0.5) + 1e-6)  # of rewards 1 and 0


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that slime's `--custom-generate-function-path` names."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    yield module
    closed(module.generate)


@pytest.fixture
def router(qwen: str) -> Iterator[Router]:
    with Router(AutoTokenizer.from_pretrained(qwen)) as made:
        yield made


def hook(here: ModuleType, environment: str = "Counting", **options: Any) -> GymmeshGenerate:
    here.generate = GymmeshGenerate(f"{ENVIRONMENTS}:{environment}", **options)  # type: ignore[attr-defined]
    return here.generate  # type: ignore[no-any-return]


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
def test_every_sampled_token_is_trained_once(
    family: Family, folder: str, tmp_path: Path, here: ModuleType, append_only: bool
) -> None:
    generate = hook(here, append_only=append_only, backend={"template": family.kwargs})
    with Router(AutoTokenizer.from_pretrained(folder)) as router:
        args = arguments(folder, router, rows(tmp_path, "Count.", "Count again."))
        samples, data = rolled_out(args)
    assert len(router.calls) == 4 * len(WORDS)
    assert trained_tokens(data, "3") == sampled(router.calls)
    assert generate.counts["tokens_lost"] == 0
    assert generate.counts["tokens_trained"] == sum(map(sum, data["loss_masks"]))
    # A rollout counts once, whatever the number of its samples.
    wrong = {one.rollout_id for one in samples if "seven" in one.response}
    assert len(wrong) == 2
    for rollout_id, reward, compared in zip(
        data["rollout_ids"], data["raw_reward"], data["rewards"], strict=True
    ):
        assert reward == float(rollout_id not in wrong)
        assert compared == pytest.approx(DIVIDED if reward else -DIVIDED)
    assert {tuple(one.weight_versions) for one in samples} == {("3",)}
    assert {one.status for one in samples} == {Sample.Status.COMPLETED}


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
def test_with_room_for_one_sample_every_token_is_trained_or_the_rollout_refused(
    family: Family, folder: str, tmp_path: Path, here: ModuleType, append_only: bool
) -> None:
    hook(here, several=False, append_only=append_only, backend={"template": family.kwargs})
    with Router(AutoTokenizer.from_pretrained(folder)) as router:
        args = arguments(
            folder, router, rows(tmp_path, "Count."), rollout_batch_size=1,
            over_sampling_batch_size=1,
        )  # fmt: skip
        try:
            _, data = rolled_out(args)
        except UserError as error:
            refusal = str(error)
        else:
            assert trained_tokens(data, "3") == sampled(router.calls)
            return
    assert not router.appends()
    assert "slime can't represent" in refusal


def test_slimes_schedule_keeps_the_samples_of_a_rollout_together(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here, append_only=False)
    args = arguments(
        qwen, router, rows(tmp_path, "Count.", "Count again."),
        use_dynamic_batch_size=True, max_tokens_per_gpu=4096, balance_data=False,
        balance_by_flops=False,
    )  # fmt: skip
    _, data = rolled_out(args)
    parallel = {
        "dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1
    }  # fmt: skip
    partitions, *_ = build_dp_schedule(
        args, parallel, [len(one) for one in data["tokens"]],
        global_batch_size=4, rollout_indices=data["rollout_ids"],
    )  # fmt: skip
    assert len(data["tokens"]) == 4 * len(WORDS)  # each answer is a sample
    assert sorted(place for part in partitions for place in part) == [*range(4 * len(WORDS))]
    # slime divides the loss of a rollout by all its trained tokens.
    for rollout_id, total in zip(data["rollout_ids"], data["rollout_mask_sums"], strict=True):
        both = zip(data["rollout_ids"], data["loss_masks"], strict=True)
        assert total == sum(sum(mask) for other, mask in both if other == rollout_id)


def test_with_one_sample_a_rollout_the_rewards_are_those_that_slime_compares_itself(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here, several=False)
    args = arguments(
        qwen, router, rows(tmp_path, "Count.", "Count again."), n_samples_per_prompt=4,
        custom_reward_post_process_path=None,
    )  # fmt: skip
    samples, data = rolled_out(args)
    args.custom_reward_post_process_path = "gymmesh_trainers.slime.group_rewards"
    ours = training_data(args, samples)
    assert sorted(data["raw_reward"]) == [0.0] * 4 + [1.0] * 4
    assert ours["raw_reward"] == data["raw_reward"]
    assert ours["rewards"] == pytest.approx(data["rewards"], rel=1e-5)
    assert trained_tokens(data, "3") == sampled(router.calls)


def test_a_failed_rollout_trains_nothing_and_moves_no_reward(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here, "Breaking", max_attempts=1)
    args = arguments(
        qwen, router, rows(tmp_path, "Count."), rollout_batch_size=1, over_sampling_batch_size=1,
        n_samples_per_prompt=4,
    )  # fmt: skip
    samples, data = rolled_out(args)
    failed = [one for one in samples if one.status == Sample.Status.FAILED]
    assert len(failed) == 2
    assert len(samples) == 4
    for one in failed:
        assert "VERIFIER_FAULT" in one.metadata["gymmesh"]["failed"]
        assert one.reward == 0.75  # the mean of its siblings, never 0
        assert one.remove_sample
        assert sum(one.loss_mask) == 0
    # The others are compared without it.
    assert sorted(data["raw_reward"]) == [0.5, 0.75, 0.75, 1.0]
    scaled = 0.25 / (math.sqrt(0.125) + 1e-6)
    expected = {0.5: -scaled, 0.75: 0.0, 1.0: scaled}
    wanted = [expected[one] for one in data["raw_reward"]]
    assert data["rewards"] == pytest.approx(wanted, abs=1e-4)
    assert trained_tokens(data, "3") == sampled(router.right())


def test_a_rollout_without_a_verdict_is_not_refused() -> None:
    """It has nothing to hand over, so that the hook makes a sample that trains nothing."""
    message = pb.Rollout(rollout_id="ro")
    call = message.model_calls.add(call_id="c", trainable=True)
    call.tokens.prompt_token_ids = array("i", [1]).tobytes()
    call.tokens.output_token_ids = array("i", [2, 3]).tobytes()
    rollout = Rollout(message, Task(pb.Task(task_id="t")))
    lost = LostTokens("refuse", "slime")
    assert rollout.counts.sampled == 2
    assert samples_of_all_actors(rollout, lost) == []


def test_each_actor_has_its_reward_and_is_compared_with_itself(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    generate = GymmeshGenerate(debated())
    here.generate = generate  # type: ignore[attr-defined]
    args = arguments(
        qwen, router, rows(tmp_path, "Debate."), rollout_batch_size=1, over_sampling_batch_size=1
    )
    samples, data = rolled_out(args)
    actors = [one.metadata["gymmesh"]["actor"] for one in samples]
    assert actors == ["", "critic"] * 2
    found = set(zip(actors, data["raw_reward"], map(_sign, data["rewards"]), strict=True))
    assert found == {("", 1.0, 1), ("", 0.0, -1), ("critic", 0.25, -1), ("critic", 0.75, 1)}
    assert trained_tokens(data, "3") == sampled(router.calls)
    assert generate.counts["tokens_lost"] == 0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def test_slimes_filter_function_reads_several_samples(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here, append_only=False)
    path = "gymmesh_trainers.slime.rewards_differ"
    args = arguments(
        qwen, router, rows(tmp_path, "Count.", "Count again."), dynamic_sampling_filter_path=path
    )
    samples, _ = rolled_out(args)
    assert len(samples) == 4 * len(WORDS)
    first = [one for one in samples if one.group_index == 0]
    right = [[one for one in first if one.reward == 1.0]]
    for group, keep, reason in (
        ([first], True, None),
        (right, False, "zero_std"),
        ([[]], False, "no_reward"),
    ):
        found = call_dynamic_filter(rewards_differ, args, group)
        assert (found.keep, found.reason) == (keep, reason)


def test_rollouts_in_flight_end_with_slimes_step(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here)
    prompts = ("Count.", "Count again.", f"Count {SLOW}.", f"Count {SLOW}, please.")
    args = arguments(qwen, router, rows(tmp_path, *prompts), over_sampling_batch_size=4)
    samples, data = rolled_out(args)
    assert len(samples) == 4
    assert {one.group_index for one in samples} == {0, 1}
    assert trained_tokens(data, "3") == sampled(router.calls)


def test_a_call_that_new_weights_interrupt_is_continued(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    hook(here)
    router.interrupts = 2
    args = arguments(
        qwen, router, rows(tmp_path, "Count."), rollout_batch_size=1, over_sampling_batch_size=1
    )
    samples, data = rolled_out(args)
    versions = {call.version for call in router.calls}
    assert versions == {"3", "4", "5"}
    # slime knows versions by sample; the tokens and their log probabilities are by token.
    assert {version for one in samples for version in one.weight_versions} == versions
    told = sum(len(call.ids) for call in router.calls)
    assert sum(map(sum, data["loss_masks"])) == told
    without = [type(call)(call.prompt, call.ids, "3") for call in router.calls]
    assert trained_tokens(data, "3") == sampled(without)


@pytest.mark.parametrize("append_only", [True, False], ids=["append_only", "rewritten"])
def test_slime_replays_the_experts_of_every_token(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType, append_only: bool
) -> None:
    settings: dict[str, Any] = {"side_data": ["routed_experts"], "side_data_path": tmp_path}
    hook(here, "Breaking", append_only=append_only, max_attempts=1, **settings)
    router.interrupts = 1
    args = arguments(
        qwen, router, rows(tmp_path, "Count."), rollout_batch_size=1, over_sampling_batch_size=1,
        n_samples_per_prompt=4, use_rollout_routing_replay=True, num_layers=2, moe_router_topk=2,
    )  # fmt: skip
    samples, data = rolled_out(args)
    assert len(samples) == (4 if append_only else 2 * len(WORDS) + 2)
    # slime has checked the shapes; a failed rollout has some experts, too, of tokens not trained.
    for one, found in zip(samples, data["rollout_routed_experts"], strict=True):
        assert found.dtype == torch.int32
        if not one.remove_sample:
            assert found.tolist() == [experts(token) for token in one.tokens[:-1]]


def test_an_evaluation_has_one_sample_a_rollout_and_no_made_up_reward(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    from slime.utils.eval_config import EvalDatasetConfig

    generate = hook(here, append_only=False)
    data = rows(tmp_path, "Count.", "Count again.")
    config = EvalDatasetConfig(name="held_out", path=str(data))
    config.n_samples_per_eval_prompt, config.input_key = 2, "prompt"
    config.temperature, config.top_p, config.top_k, config.max_response_len = 0.6, 0.9, -1, 4096
    args = arguments(qwen, router, data, eval_datasets=[config], eval_min_new_tokens=None)
    found = call_rollout_fn(generate_rollout, args, 0, None, evaluation=True).data["held_out"]
    assert sorted(found["rewards"]) == [0.0, 0.0, 1.0, 1.0]
    assert found["truncated"] == [False] * 4
    assert {body["sampling_params"]["temperature"] for body in router.bodies} == {0.6}
    assert generate.counts["tokens_sampled"] == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"custom_reward_post_process_path": None}, "rewards of different groups"),
        ({"group_rm": True}, "--group-rm"),
        ({"partial_rollout": True}, "--partial-rollout"),
        ({"rollout_top_p": 0.9}, "--rollout-top-p"),
        ({"use_rollout_routing_replay": True}, "--use-rollout-routing-replay"),
        ({"reward_key": "score"}, "--reward-key"),
    ],
)
async def test_what_would_train_on_something_else_is_refused(
    router: Router,
    qwen: str,
    tmp_path: Path,
    here: ModuleType,
    changed: dict[str, Any],
    said: str,
) -> None:
    generate = hook(here)
    args = arguments(qwen, router, rows(tmp_path, "Count."), **changed)
    with pytest.raises(UserError, match=said):
        await generate(args, Sample(prompt="Count.", index=0, group_index=0), {})


async def test_a_prompt_that_is_rendered_already_is_refused(
    router: Router, qwen: str, tmp_path: Path, here: ModuleType
) -> None:
    generate = hook(here)
    args = arguments(qwen, router, rows(tmp_path, "Count."), apply_chat_template=True)
    with pytest.raises(UserError, match="rendered already"):
        await generate(args, Sample(prompt="<|im_start|>user", index=0, group_index=0), {})
