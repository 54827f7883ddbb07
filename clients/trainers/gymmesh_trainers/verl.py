"""veRL: an agent loop.

In the file that `agent_loop_config_path` names:

    - name: gymmesh
      _target_: gymmesh_trainers.verl.GymmeshAgentLoop
      environment: shop.py:Shop

and rows with `agent_name: gymmesh`. A row's task is the JSON text under `extra_info.task`, as
`gym-cli export --format verl` may write it, or else its `raw_prompt` with the keys of `extra_info`.
Inference stays veRL's: each model call is a `server_manager.generate` of token ids.

Interface: veRL 0.9, `verl.experimental.agent_loop.AgentLoopBase`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from gymmesh_client import UserError
from gymmesh_model.backends.tokens_in import Generation, SamplingParams
from gymmesh_trainers.collecting import SharedMesh, task_written
from gymmesh_trainers.rollouts import NO_VERSION, FailedRollout, Rollout
from gymmesh_trainers.testing import RolloutFailed

__all__ = ["GymmeshAgentLoop", "task_of_row"]

_MESHES: Final[dict[str, SharedMesh]] = {}


class GymmeshAgentLoop(AgentLoopBase):  # type: ignore[misc]  # veRL ships no types
    """One rollout in an environment of gymmesh.

    Args:
        environment: see `gymmesh_trainers.collecting.place.MeshPlace`; one that a text can name.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        settings: see Settings.
    """

    def __init__(
        self,
        *args: Any,
        environment: str = "math",
        backend: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        key = f"{environment}\n{backend}\n{settings}"
        if key not in _MESHES:
            _MESHES[key] = SharedMesh(
                environment, self.tokenizer, backend or {}, **(settings or {})
            )
        self._mesh = _MESHES[key]

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """A rollout of the row's task. Raises RolloutFailed, UserError."""
        priority = row.get("priority")

        async def generate(prompt: list[int], params: SamplingParams) -> Generation:
            asked = dict(sampling_params)
            if params.max_tokens is not None:
                asked["max_tokens"] = params.max_tokens
            more = {} if priority is None else {"priority": priority}
            made = await self.server_manager.generate(
                request_id=params.request_id, prompt_ids=prompt, sampling_params=asked, **more
            )
            said = (made.extra_fields or {}).get("global_steps")
            spans = [(int(said), 0)] if said is not None else []
            return Generation(made.token_ids, made.log_probs or (), weights=spans)

        began = time.monotonic()
        async with self._mesh.collector(generate) as collector:
            rollout = await collector.one(task_of_row(row))
        if isinstance(rollout, FailedRollout):
            raise RolloutFailed(rollout)
        fields = loop_output(rollout, int(self.rollout_config.response_length))
        # veRL's only measure of a loop that it fills in itself.
        fields["metrics"] = {"generate_sequences": time.monotonic() - began}
        return AgentLoopOutput(**fields)


def task_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a dataset's row. Raises UserError."""
    extra = dict(row.get("extra_info") or {})
    written = extra.pop("task", None)
    if written is not None:
        return task_written(written, "extra_info.task")
    if row.get("raw_prompt") is None:
        raise UserError("raw_prompt: is missing, and so is extra_info.task")
    truth = (row.get("reward_model") or {}).get("ground_truth")
    task = {"prompt": [dict(one) for one in row["raw_prompt"]], **extra}
    return task if truth is None else {"expected_answer": truth, **task}


def loop_output(rollout: Rollout, most: int) -> dict[str, Any]:
    """The fields of an AgentLoopOutput. Pure.

    It has room for one path: see Rollout.last_sample; `extra_fields.paths_left_out` says how many
    were not taken.
    """
    sample = rollout.last_sample
    if sample is None:
        raise UserError(f"rollout {rollout.id}: has no tokens")
    extra: dict[str, Any] = {
        "turn_scores": [],
        "tool_rewards": [],
        "paths_left_out": len(rollout.samples) - 1,
        "rollout_id": rollout.id,
        "stop_reason": rollout.stop_reason,
    }
    trained = zip(sample.weights_versions, sample.mask, strict=True)
    steps = [version for version, on in trained if on and version != NO_VERSION]
    if steps:
        extra |= {"min_global_steps": min(steps), "max_global_steps": max(steps)}
    return {
        "prompt_ids": sample.prompt_ids,
        "response_ids": sample.completion_ids[:most],
        "response_mask": sample.completion_mask[:most],
        "response_logprobs": sample.completion_logprobs[:most] or None,
        "reward_score": rollout.reward_of(sample.actor),
        "num_turns": 1 + len(rollout.message.model_calls) + len(rollout.message.turns),
        "extra_fields": extra,
    }
