"""OpenRLHF: an agent executor.

A file for `--train.agent_func_path`:

    from gymmesh_trainers.openrlhf import executor
    AgentExecutor = executor("shop.py:Shop")

The label of a prompt (`--data.label_key`) is its task: the row of a task file as JSON text. The
rollouts' tokens are sampled by OpenRLHF's own engine (`llm_engine.generate`).

Interface: OpenRLHF 0.11, `openrlhf.utils.agent.AgentExecutorBase`.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

from openrlhf.utils.agent import AgentExecutorBase

from gymmesh_client import UserError
from gymmesh_model.backends.tokens_in import Generation, SamplingParams
from gymmesh_responses import CodecError, loads
from gymmesh_trainers.collecting import MeshPlace, SharedMesh
from gymmesh_trainers.rollouts import FailedRollout, Rollout
from gymmesh_trainers.testing import RolloutFailed

__all__ = ["executor", "executor_output"]


def executor(
    place: MeshPlace, *, backend: dict[str, Any] | None = None, **settings: Any
) -> type[AgentExecutorBase]:
    """The class that OpenRLHF makes its executor of.

    Args:
        place: the environment, see `gymmesh_trainers.collecting.place.MeshPlace`.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        settings: see Settings.
    """

    class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # OpenRLHF ships no types
        """One rollout for each prompt."""

        def __init__(self) -> None:
            self._mesh: SharedMesh | None = None

        async def execute(
            self,
            prompt: Any,
            label: Any,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """A rollout of the label's task. Raises RolloutFailed, UserError."""
            if self._mesh is None:
                options = {"context_tokens": max_length} | (backend or {})
                self._mesh = SharedMesh(place, hf_tokenizer, options, **settings)

            async def generate(ids: list[int], params: SamplingParams) -> Generation:
                asked = deepcopy(sampling_params)
                asked.max_tokens = params.max_tokens
                made = (await llm_engine.generate(ids, asked, multi_modal_data=None)).outputs[0]
                sampled = list(made.token_ids)
                logprobs = [
                    found[token].logprob
                    for token, found in zip(sampled, made.logprobs or (), strict=False)
                ]
                return Generation.ended(sampled, logprobs, made.finish_reason)

            async with self._mesh.collector(generate) as collector:
                rollout = await collector.one(_task(label))
            if isinstance(rollout, FailedRollout):
                raise RolloutFailed(rollout)
            found = executor_output(rollout, wants_logprobs=sampling_params.logprobs is not None)
            return {"prompt": prompt, "label": label, "images": images} | found

        async def close(self) -> None:
            """Close the mesh; OpenRLHF itself ends with its process."""
            mesh, self._mesh = self._mesh, None
            if mesh is not None:
                await mesh.close()

    return AgentExecutor


def executor_output(rollout: Rollout, *, wants_logprobs: bool) -> dict[str, Any]:
    """What `execute` returns of a rollout. Pure.

    There is room for one path: see Rollout.last_sample; `extra_logs` says how many were not taken.
    """
    sample = rollout.last_sample
    if sample is None:
        raise UserError(f"rollout {rollout.id}: has no tokens")
    reward = rollout.reward_of(sample.actor)
    if reward is None:
        raise UserError(f"rollout {rollout.id}: has no reward; OpenRLHF has no place for that")
    edges = [0, *sample.mask, 0]
    changes = [place for place, (before, now) in enumerate(pairwise(edges)) if before != now]
    ranges = list(zip(changes[::2], changes[1::2], strict=True))
    return {
        "mm_train_inputs": None,
        "reward": reward,
        "scores": reward,
        "observation_tokens": sample.tokens,
        "action_ranges": ranges,
        "rollout_log_probs": _masked(sample.logprobs, sample.mask) if wants_logprobs else None,
        "truncated": rollout.truncated,
        "extra_logs": {"paths_left_out": len(rollout.samples) - 1, **rollout.components},
    }


def _masked(logprobs: list[float], mask: list[int]) -> list[float]:
    if not logprobs:
        raise UserError("the engine gave no log probabilities, though they were asked for")
    return [value if on else 0.0 for value, on in zip(logprobs, mask, strict=True)]


def _task(label: Any) -> dict[str, Any]:
    try:
        task = loads(label) if isinstance(label, str | bytes) else label
    except CodecError as error:
        raise UserError(f"label: must be a task's row as JSON text: {error}") from None
    if not isinstance(task, dict):
        raise UserError("label: must be a task's row as JSON text (--data.label_key)")
    return task
