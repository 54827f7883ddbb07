"""SkyRL: a generator.

In a subclass of `BasePPOExp`:

    def get_generator(self, cfg, tokenizer, inference_engine_client):
        return GymmeshGenerator("shop.py:Shop", tokenizer, inference_engine_client)

A row's task is the JSON text under `env_extras.task`, or else its prompt with the other keys of
`env_extras`. Tokens are sampled by SkyRL's inference engines.

Interface: SkyRL 0.3, `skyrl.train.generators.base.GeneratorInterface`, whose `generate` takes and
gives dictionaries; nothing of SkyRL is imported. Tried with SkyRL's own input, interface of an
engine and checks of the output; not in its trainer, which wants GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymmesh_client import UserError
from gymmesh_model.backends.tokens_in import Generation, SamplingParams
from gymmesh_trainers.collecting import MeshPlace, SharedMesh, task_written
from gymmesh_trainers.rollouts import FailedRollout, Rollout
from gymmesh_trainers.testing import RolloutFailed

__all__ = ["GymmeshGenerator"]


class GymmeshGenerator:
    """Generates with rollouts in an environment of gymmesh.

    Args:
        place: the environment, see `gymmesh_trainers.collecting.place.MeshPlace`.
        client: SkyRL's InferenceEngineClient.
        backend: further arguments of TokenBackend.
        settings: see Settings.
    """

    def __init__(
        self,
        place: MeshPlace,
        tokenizer: Any,
        client: Any,
        *,
        backend: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._client = client
        self._mesh = SharedMesh(place, tokenizer, backend or {}, **settings)

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """A GeneratorOutput: a row for each prompt, in order.

        What a row has no room for is counted in `rollout_metrics`.

        Raises:
            RolloutFailed: a rollout failed; SkyRL has no word for that.
            UserError: a task cannot be used, or a rollout has no reward or no tokens.
        """
        prompts = input_batch["prompts"]
        extras = input_batch.get("env_extras") or [{}] * len(prompts)
        tasks = [_task(prompt, extra) for prompt, extra in zip(prompts, extras, strict=True)]
        # Batches run side by side, and an evaluation's parameters are others.
        sampling = dict(input_batch.get("sampling_params") or {})

        async def generate(prompt: list[int], params: SamplingParams) -> Generation:
            asked = dict(sampling)
            if params.max_tokens is not None:
                asked["max_tokens"] = params.max_tokens
            made = await self._client.generate(
                {
                    "prompt_token_ids": [prompt],
                    "sampling_params": asked,
                    "session_ids": [params.request_id],
                }
            )
            logprobs = (made.get("response_logprobs") or [[]])[0]
            return Generation.ended(
                made["response_ids"][0], logprobs or (), made["stop_reasons"][0]
            )

        async with self._mesh.collector(generate) as collector:
            rollouts = await collector.many(tasks)
        return _output(rollouts, input_batch.get("trajectory_ids"))

    async def close(self) -> None:
        """Close the mesh."""
        await self._mesh.close()


def _output(rollouts: Sequence[Rollout | FailedRollout], trajectory_ids: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: []
        for key in (
            "prompt_token_ids", "response_ids", "rewards", "loss_masks", "stop_reasons",
            "rollout_logprobs",
        )
    }  # fmt: skip
    paths_left_out = 0
    for rollout in rollouts:
        # SkyRL has no word for no reward, and a number in its place would count in the mean of
        # the group.
        if isinstance(rollout, FailedRollout):
            raise RolloutFailed(rollout)
        last = rollout.last_sample
        if last is None:
            raise UserError(f"rollout {rollout.id}: has no tokens")
        reward = rollout.reward_of(last.actor)
        if reward is None:
            raise UserError(f"rollout {rollout.id}: has no reward, which SkyRL cannot take")
        paths_left_out += len(rollout.samples) - 1
        found["prompt_token_ids"].append(last.prompt_ids)
        found["response_ids"].append(last.completion_ids)
        found["loss_masks"].append(last.completion_mask)
        found["rewards"].append(reward)
        found["stop_reasons"].append("length" if rollout.truncated else "stop")
        found["rollout_logprobs"].append(last.completion_logprobs)
    if not all(found["rollout_logprobs"]):
        found["rollout_logprobs"] = None  # SkyRL's own word; 0.0 would be a certainty
    found["rollout_metrics"] = {"gymmesh/paths_left_out": paths_left_out}
    if trajectory_ids is not None:
        found["trajectory_ids"] = trajectory_ids
    return found


def _task(prompt: Any, extra: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(extra)
    written = rest.pop("task", None)
    if written is None:
        return {"prompt": [dict(one) for one in prompt], **rest}
    return task_written(written, "env_extras.task")
