"""The worker of veRL's V1 trainer that runs agent loops, without its cluster: its own code, with a
queue that keeps what is put into it.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import verl
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.utils.dataset.rl_dataset import RLHFDataset


class KeptQueue:
    """As much of TransferQueue as the worker calls."""

    def __init__(self) -> None:
        self.tags: dict[str, Any] = {}
        self.fields: dict[str, dict[str, Any]] = {}

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags[key] = tag

    async def async_kv_batch_put(
        self, keys: list[str], fields: Any, tags: list[dict[str, Any]], partition_id: str
    ) -> None:
        for place, key in enumerate(keys):
            self.tags[key] = tags[place]
            self.fields[key] = {name: fields[name][place] for name in fields.keys()}  # noqa: SIM118


def _module() -> Any:
    """The module alone: its package imports the trainer, which wants GPUs' libraries."""
    path = Path(verl.__file__).parent / "trainer" / "ppo" / "v1" / "agent_loop_tq.py"
    spec = importlib.util.spec_from_file_location("verl_agent_loop_tq", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_prompt(
    tokenizer: Any, server: Any, row: dict[str, Any], *, repeats: int = 1, **loop: Any
) -> KeptQueue:
    """Let the worker run a row `repeats` times; loop: the agent loop's configuration."""
    module, queue = _module(), KeptQueue()
    module.tq = queue
    worker = object.__new__(module.AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    rollout = {
        "name": "vllm", "n": repeats, "response_length": 4096, "prompt_length": 4096,
        "multi_turn": {"format": "hermes", "tokenization_sanity_check_mode": "disable"},
    }  # fmt: skip
    worker.config = OmegaConf.create(
        {
            "trainer": {"use_v1": True},
            "actor_rollout_ref": {"rollout": rollout, "model": {}},
            "data": {},
        }
    )
    worker.rollout_config = worker.config.actor_rollout_ref.rollout
    worker.tokenizer, worker.llm_client = tokenizer, server
    worker.processor = worker.hf_model_type = worker.reward_loop_worker_handles = None
    worker.distillation_enabled, worker.tools = False, []
    worker.mm_processor_kwargs, worker.dataset_cls = {}, RLHFDataset
    target = "gymmesh_trainers.verl.GymmeshAgentLoop"
    _agent_loop_registry["gymmesh"] = {"_target_": target, **loop}
    prompt = {"uid": "u", "agent_name": "gymmesh", "global_steps": 1, "raw_prompt": [], **row}
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}

    async def run() -> None:
        from gymmesh_trainers.verl import GymmeshAgentLoop

        sampling = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "logprobs": True}
        try:
            await worker._run_prompt(prompt, sampling, trajectory)
        finally:
            await GymmeshAgentLoop.close_meshes()

    asyncio.run(run())
    return queue
