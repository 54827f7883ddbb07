"""slime's own rollout loop over rows of tasks, and what it makes of the samples for training."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any, Final

from slime.observability.rollout_data_utils import validate_rollout_id_annotated
from slime.rollout.base_types import call_rollout_fn
from slime.rollout.data_source import RolloutDataSource
from slime.rollout.sglang_rollout import GenerateState, generate_rollout
from slime.utils import http_utils
from slime.utils.async_utils import run
from slime.utils.misc import SingletonMeta, load_function

from tests.handoff.slime_areal.router import Facts, Router, trained
from tests.handoff.slime_areal.slime_source import manager_class

MODULE: Final = "tests.handoff.slime_areal.generate_here"


def arguments(folder: str, router: Router, data: Path, **changed: Any) -> Namespace:
    """slime's arguments, as far as rollouts read them, with the defaults of its parser."""
    args: dict[str, Any] = {
        "advantage_estimator": "grpo", "rewards_normalization": True,
        "grpo_std_normalization": True,
        "custom_reward_post_process_path": "gymmesh_trainers.slime.group_rewards",
        "custom_generate_function_path": f"{MODULE}.generate",
        "custom_convert_samples_to_train_data_path": None, "custom_rm_path": None,
        "dynamic_sampling_filter_path": None, "rollout_sample_filter_path": None,
        "rollout_all_samples_process_path": None, "rollout_sample_hook_path": None,
        "reward_key": None, "eval_reward_key": None, "rm_type": None, "group_rm": False,
        "hf_checkpoint": folder, "prompt_data": str(data), "input_key": "prompt",
        "label_key": None, "metadata_key": "metadata", "tool_key": None, "multimodal_keys": None,
        "apply_chat_template": False, "apply_chat_template_kwargs": {},
        "rollout_global_dataset": True, "rollout_shuffle": False, "rollout_seed": 42,
        "rollout_batch_size": 2, "over_sampling_batch_size": 2, "n_samples_per_prompt": 2,
        "rollout_temperature": 1.0, "rollout_top_p": 1.0, "rollout_top_k": -1,
        "rollout_max_response_len": 8192, "rollout_max_prompt_len": None,
        "rollout_max_context_len": None, "rollout_stop": None, "rollout_stop_token_ids": None,
        "rollout_skip_special_tokens": False, "use_rollout_routing_replay": False,
        "partial_rollout": False, "mask_offpolicy_in_partial_rollout": False, "ci_test": False,
        "sglang_router_ip": "127.0.0.1", "sglang_router_port": router.port,
        "sglang_server_concurrency": 64, "sglang_dp_size": 1, "use_distributed_post": False,
        "rollout_num_gpus": 1, "rollout_num_gpus_per_engine": 1, "num_gpus_per_node": 1,
        "dump_details": None, "save": None, "load": None, "eval_max_prompt_len": None,
    }  # fmt: skip
    args |= changed
    made = Namespace(**args)
    SingletonMeta.clear_instances(GenerateState)
    load_function.cache_clear()
    http_utils._http_client = None
    http_utils.init_http_client(made)
    return made


def closed(generate: Any) -> None:
    """Close what slime leaves to the end of its process, in the thread of slime's event loop."""

    async def close() -> None:
        await generate.close()
        if http_utils._http_client is not None:
            await http_utils._http_client.aclose()

    run(close())


def rows(folder: Path, *prompts: str) -> Path:
    """A file of prompts, each with a task."""
    path = folder / "rows.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for place, prompt in enumerate(prompts):
            task = {"task_id": f"t{place}", "prompt": prompt}
            row = {"prompt": "not read", "metadata": {"task": json.dumps(task)}}
            file.write(json.dumps(row) + "\n")
    return path


def rolled_out(args: Namespace) -> tuple[list[Any], dict[str, Any]]:
    """The samples of one of slime's rollout steps, and its data for training."""
    source = RolloutDataSource(args)
    samples = call_rollout_fn(generate_rollout, args, 0, source, evaluation=False).samples
    validate_rollout_id_annotated(samples)
    while isinstance(samples[0], list):
        samples = list(itertools.chain.from_iterable(samples))
    return samples, training_data(args, samples)


def training_data(args: Namespace, samples: list[Any]) -> dict[str, Any]:
    """What slime's manager makes of samples."""
    manager_type = manager_class()
    manager = manager_type.__new__(manager_type)
    manager.args = args
    manager.custom_convert_samples_to_train_data_func = None
    path = args.custom_reward_post_process_path
    manager.custom_reward_post_process_func = path and load_function(path)
    data: dict[str, Any] = manager._convert_samples_to_train_data(samples)
    return data


def trained_tokens(data: dict[str, Any], version: str) -> Counter[Facts]:
    """Each token that is trained; slime knows versions by sample only."""
    found: Counter[Facts] = Counter()
    lists = (data["tokens"], data["loss_masks"], data["rollout_log_probs"])
    for tokens, mask, logprobs in zip(*lists, strict=True):
        prompt = [0] * (len(tokens) - len(mask))
        versions = [version] * len(tokens)
        found += trained(tokens, prompt + mask, prompt + logprobs, versions)
    return found
