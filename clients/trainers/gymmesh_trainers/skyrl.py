"""SkyRL: a generator.

In a subclass of `BasePPOExp`:

    def get_generator(self, cfg, tokenizer, inference_engine_client):
        return GymmeshGenerator(
            "shop.py:Shop", tokenizer, inference_engine_client,
            step_wise=cfg.generator.step_wise_trajectories,
        )

A row's task is the JSON text under `env_extras.task`. If `env_extras.task` is missing, the task is
the row's prompt with the other keys of `env_extras`. SkyRL's inference engines sample the tokens.

With `generator.step_wise_trajectories` SkyRL accepts every sample of a rollout, as steps of one
trajectory, and gives all of them the advantage of the last. Without it, SkyRL accepts one sample.
`lost` says what happens to sampled tokens that SkyRL can't receive.

A rollout that failed or has no reward doesn't end the step. Its row trains no token and has the
mean reward of its group, so that it changes no other rollout's advantage.

Interface: SkyRL 0.3, `skyrl.train.generators.base.GeneratorInterface`, whose `generate` accepts and
returns dictionaries; nothing of SkyRL is imported. Tested with SkyRL's own input, engine interface
and checks of the output; not in its trainer, which needs GPUs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

from gymmesh_client import UserError
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_trainers.hooks import (
    ROUTED_EXPERTS,
    Lost,
    LostTokens,
    experts_given,
    experts_of,
    filler_rewards,
    paths_left_out,
    refuse_images,
)
from gymmesh_trainers.rollouts import FailedRollout, Rollout, TrainingSample
from gymmesh_trainers.testing import RolloutFailed
from gymmesh_trainers.trainer_collector import MeshPlace, SharedMesh, task_written

__all__ = ["GymmeshGenerator"]


class GymmeshGenerator:
    """Generates with rollouts in an environment of gymmesh. Close it, or use it as `async with`.

    Args:
        place: the environment, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        client: SkyRL's InferenceEngineClient.
        backend: further arguments of TokenBackend.
        step_wise: whether SkyRL's configuration sets `generator.step_wise_trajectories`.
        turn_rewards: return one reward for each token. The rewards of turns, tool calls and spans
            are at their tokens. The last token has the rest, so that the sum is the rollout's
            reward. False: return only the rollout's reward. With step-wise trajectories, SkyRL
            reads only the last step's reward.
        lost: whether to `refuse` a rollout with sampled tokens that SkyRL can't receive, or `warn`.
        settings: see Settings.
    """

    def __init__(
        self,
        place: MeshPlace,
        tokenizer: Any,
        client: Any,
        *,
        backend: Mapping[str, Any] | None = None,
        step_wise: bool = False,
        turn_rewards: bool = False,
        lost: Lost = "refuse",
        **settings: Any,
    ) -> None:
        self._client = client
        self._mesh = SharedMesh(place, tokenizer, backend or {}, **settings)
        self._lost = LostTokens(lost, "SkyRL", "" if step_wise else "step_wise=True")
        self._room = None if step_wise else 1
        self._step_wise = step_wise
        self._turn_rewards = turn_rewards
        self._stop = int(tokenizer.eos_token_id)
        self._wants_experts = ROUTED_EXPERTS in settings.get("side_data", ())

    async def __aenter__(self) -> GymmeshGenerator:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """A GeneratorOutput with one row for each prompt, in order; step-wise, one row for each
        sample.

        `rollout_metrics` counts failed rollouts, rollouts without a reward, and lost tokens.

        Raises:
            RolloutFailed: rollouts failed, and no rollout of the batch has a reward.
            UserError: a task is invalid, or SkyRL can't receive a rollout.
        """
        prompts = input_batch["prompts"]
        extras = input_batch.get("env_extras") or [{}] * len(prompts)
        tasks = [_task(prompt, extra) for prompt, extra in zip(prompts, extras, strict=True)]
        # Batches run side by side, and an evaluation's parameters are others.
        sampling = dict(input_batch.get("sampling_params") or {})

        async def generate(prompt: list[int], params: SamplingParams) -> Generation:
            asked = dict(sampling)
            if params.max_tokens is not None:
                given = asked.get("max_tokens") or params.max_tokens
                asked["max_tokens"] = min(given, params.max_tokens)
            if params.seed is not None:
                asked["seed"] = params.seed
            made = await self._client.generate(
                {
                    "prompt_token_ids": [prompt],
                    "sampling_params": asked,
                    "session_ids": [params.request_id],
                }
            )
            logprobs = (made.get("response_logprobs") or [[]])[0]
            made_of = Generation.ended(
                made["response_ids"][0], logprobs or (), made["stop_reasons"][0]
            )
            if not self._wants_experts:
                return made_of
            given = (made.get("rollout_expert_indices") or [None])[0]
            return replace(made_of, side_data=experts_given("SkyRL", given))

        async with self._mesh.collector(generate) as collector:
            rollouts = await collector.many(tasks)
        return self._output(rollouts, input_batch.get("trajectory_ids"))

    async def close(self) -> None:
        """Close the mesh."""
        await self._mesh.close()

    def _output(
        self, rollouts: Sequence[Rollout | FailedRollout], ids: Sequence[Any] | None
    ) -> dict[str, Any]:
        if self._step_wise and ids is None:
            raise UserError(
                "trajectory_ids: is missing, but step-wise training needs this argument"
            )
        for rollout in rollouts:
            refuse_images(rollout, "SkyRL")
        kept = [self._kept(rollout) for rollout in rollouts]
        rewards = _rewards(rollouts, ids)
        rows: list[_OutputRow] = []
        places: list[int] = []
        for place, (rollout, samples, reward) in enumerate(
            zip(rollouts, kept, rewards, strict=True)
        ):
            made = [_row(rollout, one, reward, self._turn_rewards) for one in samples]
            made = made or [_OutputRow.masked(self._stop, reward, self._turn_rewards)]
            rows += made
            places += [place] * len(made)
        output: dict[str, Any] = {
            "prompt_token_ids": [one.prompt for one in rows],
            "response_ids": [one.response for one in rows],
            "rewards": [one.reward for one in rows],
            "loss_masks": [one.mask for one in rows],
            "stop_reasons": [one.stop_reason for one in rows],
            # None is SkyRL's own word; 0.0 would be a certainty.
            "rollout_logprobs": [one.logprobs for one in rows]
            if all(one.logprobs for one in rows)
            else None,
            "rollout_metrics": _metrics(rollouts, kept),
        }
        if self._wants_experts:
            output["rollout_expert_indices"] = [one.experts for one in rows]
        if ids is not None:
            output["trajectory_ids"] = [ids[place] for place in places]
        if self._step_wise:
            output["is_last_step"] = [
                place != behind for place, behind in zip(places, [*places[1:], -1], strict=True)
            ]
        return output

    def _kept(self, rollout: Rollout | FailedRollout) -> list[TrainingSample]:
        """The samples that are handed over; empty for a rollout without a reward."""
        if isinstance(rollout, FailedRollout) or _reward(rollout) is None:
            return []
        return self._lost.all_of_one_reward(rollout, room=self._room)


@dataclass(frozen=True, slots=True)
class _OutputRow:
    """A row of a GeneratorOutput."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    reward: float | list[float]
    stop_reason: str
    experts: list[Any]  # empty: SkyRL's replay leaves the row out

    @classmethod
    def masked(cls, stop: int, reward: float, by_token: bool) -> _OutputRow:
        """A row that trains nothing."""
        return cls([stop], [stop], [0], [0.0], [reward] if by_token else reward, "error", [])


def _row(
    rollout: Rollout | FailedRollout, sample: TrainingSample, reward: float, by_token: bool
) -> _OutputRow:
    assert isinstance(rollout, Rollout)  # a failed one has no samples
    given: float | list[float] = reward
    if by_token:
        given = sample.completion_rewards
        given[-1] += reward - fsum(given)
    return _OutputRow(
        sample.prompt_ids,
        sample.completion_ids,
        sample.completion_mask,
        sample.completion_logprobs,
        given,
        "length" if rollout.truncated else "stop",
        # As nested lists, which is what SkyRL 0.3 takes; a row for each token but the last.
        [] if (experts := experts_of(rollout, sample)) is None else experts.array().tolist(),
    )


def _reward(rollout: Rollout | FailedRollout) -> float | None:
    if isinstance(rollout, FailedRollout):
        return None
    last = rollout.last_sample
    return rollout.reward if last is None else rollout.reward_of(last.actor)


def _rewards(rollouts: Sequence[Rollout | FailedRollout], ids: Sequence[Any] | None) -> list[float]:
    """The reward of each row, that of its group's mean where it has none of its own."""
    known = [_reward(rollout) for rollout in rollouts]
    given = [one for one in known if one is not None]
    if len(given) == len(known):
        return given
    places = range(len(rollouts))
    groups: list[Hashable] = list(places) if ids is None else [one.instance_id for one in ids]
    found = filler_rewards(known, groups)
    if found is not None:
        return found
    for rollout in rollouts:
        if isinstance(rollout, FailedRollout):
            raise RolloutFailed(rollout)
    raise UserError("no rollout of the batch has a reward, so there is nothing to train")


def _metrics(
    rollouts: Sequence[Rollout | FailedRollout], kept: Sequence[Sequence[TrainingSample]]
) -> dict[str, float]:
    failed = sum(isinstance(one, FailedRollout) for one in rollouts)
    both = zip(rollouts, kept, strict=True)
    judged = [
        (one, samples)
        for one, samples in both
        if isinstance(one, Rollout) and _reward(one) is not None
    ]
    sampled = sum(one.counts.sampled for one, _ in judged)
    trained = sum(sample.trained for samples in kept for sample in samples)
    return {
        "gymmesh/failed": failed,
        "gymmesh/unscored": len(rollouts) - len(judged) - failed,
        "gymmesh/tokens_sampled": sampled,
        "gymmesh/tokens_lost": sampled - trained,
        "gymmesh/paths_left_out": sum(paths_left_out(one, samples) for one, samples in judged),
    }


def _task(prompt: Any, extra: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(extra)
    written = rest.pop("task", None)
    if written is None:
        return {"prompt": [dict(one) for one in prompt], **rest}
    return task_written(written, "env_extras.task")
