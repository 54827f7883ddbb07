"""Tinker: its sampling client as the policy, and groups as the cookbook's trajectory groups.

    engine = TinkerEngine(sampling_client)
    made = TinkerGroups()
    async with TrainerCollector(place, tasks=rows, model=TokenBackend(tokenizer, engine)) as mesh:
        async with mesh.step(groups=32) as step:
            groups = [one async for group in step for one in made.of(group)]
        data, _ = assemble_training_data(groups, compute_advantages(groups))
        ...  # Tinker's forward_backward with "importance_sampling", and its optim_step
        engine.use(await training_client.save_weights_and_get_sampling_client_async(), step.number)
        await mesh.set_weights_version(step.number)

`assemble_training_data` and `compute_advantages` are from `tinker_cookbook.rl.data_processing`. A
stretch of tokens that the policy sampled freely is a transition, and all earlier tokens are its
observation. So the cookbook's mask equals the sample's mask. After a rewritten history, the
trajectory has another datum. Each actor has its own group, with its own rewards.

A trajectory without a reward is not passed on. Tinker's data has no weights versions; they are
metrics of the trajectory.

Interface: tinker 0.38, tinker-cookbook 0.6.1. Tested with the cookbook's own types and functions,
and with a scripted sampling client; not with Tinker's service.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl import types

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_trainers.hooks import Lost, LostTokens, refuse_images
from gymmesh_trainers.rollouts import NO_VERSION, Rollout, RolloutGroup, TrainingSample

__all__ = ["TinkerEngine", "TinkerGroups"]

_STOPS: Final = {
    "MODEL_FINISHED": types.StopReason.COMPLETED,
    "ENVIRONMENT_DONE": types.StopReason.TOOL_STOPPED,
    "MAX_STEPS": types.StopReason.MAX_TURNS,
    "MAX_OUTPUT_TOKENS": types.StopReason.MAX_TOKENS,
    "CONTEXT_LENGTH": types.StopReason.CONTEXT_OVERFLOW,
}


class TinkerEngine:
    """Samples with a Tinker sampling client; a `Generate` for TokenBackend.

    Args:
        client: a `tinker.SamplingClient`.
        version: the version of the client's weights; None: the version announced to the mesh.
    """

    def __init__(self, client: Any, version: int | None = None) -> None:
        self._client = client
        self._version = version

    def use(self, client: Any, version: int | None = None) -> None:
        """Sample with this client from the next call on. A call that has begun ends with the
        previous client, and its tokens have that client's version.
        """
        self._client, self._version = client, version

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        """Sample an answer. Raises ValueError for parameters that Tinker doesn't have."""
        if params.stop:
            raise ValueError(
                "stop: Tinker can't stop at texts and at token ids in one call; use only "
                "texts or only token ids"
            )
        if params.min_p:
            raise ValueError("min_p: Tinker does not support min_p; remove min_p")
        asked = params.as_dict()
        asked.pop("min_p", None)
        version = self._version
        made = await self._client.sample(
            prompt=tinker.ModelInput.from_ints(prompt),
            num_samples=1,
            sampling_params=tinker.SamplingParams(
                **asked, stop=list(params.stop_token_ids) or None
            ),
        )
        sampled = made.sequences[0]
        return Generation(
            sampled.tokens,
            sampled.logprobs or (),
            finished=sampled.stop_reason == "stop",
            weights=() if version is None else ((version, 0),),
            distribution=_distribution(params),
        )


class TinkerGroups:
    """Creates the cookbook's trajectory groups from groups of gymmesh.

    lost: whether to `refuse` a rollout with sampled tokens that Tinker can't receive, or `warn`.
    """

    def __init__(self, lost: Lost = "refuse") -> None:
        self._lost = LostTokens(lost, "Tinker")

    @property
    def counts(self) -> Mapping[str, int]:
        """`tokens_sampled`, `tokens_trained` and `tokens_lost` so far."""
        return self._lost.counts

    def of(self, group: RolloutGroup) -> list[types.TrajectoryGroup]:
        """A trajectory group for each actor with a reward; the root agent's is first. Empty if no
        rollout of the group has a reward; see the group's `failed` and `unscored`.

        `rollout_errors` of the first trajectory group has the rollouts that failed and those
        without a verdict. Raises UserError for a rollout that Tinker can't receive.
        """
        for rollout in group.rollouts:
            refuse_images(rollout, "Tinker")
            trained = sum(_trained(one) for one in rollout.samples)
            self._lost.account(rollout, trained, rollout.samples, _why_lost(rollout))
        found = [_of_actor(group, actor) for actor in group.actors]
        if found:
            found[0].rollout_errors.extend(_errors(group))
        return found


def _of_actor(group: RolloutGroup, actor: str) -> types.TrajectoryGroup:
    rewards = group.rewards_of(actor)
    both = zip(group.rollouts, rewards, strict=True)
    known = [(rollout, reward) for rollout, reward in both if reward is not None]
    return types.TrajectoryGroup(
        trajectories_G=[_trajectory(rollout, actor) for rollout, _ in known],
        # The rollout's alone: the cookbook would add the rewards of turns to it.
        final_rewards_G=[reward for _, reward in known],
        metrics_G=[_metrics(rollout, actor) for rollout, _ in known],
    )


def _trajectory(rollout: Rollout, actor: str) -> types.Trajectory:
    samples = rollout.by_actor[actor]
    stop = _STOPS.get(rollout.stop_reason)
    return types.Trajectory(
        transitions=[one for sample in samples for one in _transitions(rollout, sample)],
        final_ob=tinker.ModelInput.from_ints(samples[-1].tokens),
        stop_reason=None if stop is None else str(stop),
    )


def _transitions(rollout: Rollout, sample: TrainingSample) -> list[types.Transition]:
    """One for each stretch of tokens that the sample trains."""
    tokens, logprobs = sample.tokens, sample.logprobs
    if not logprobs:
        raise UserError(
            f"rollout {rollout.id} of task {rollout.task.id}: log probabilities are missing, "
            "or come from different distributions. Tinker needs a log probability for every "
            "sampled token, and one distribution for all"
        )
    stretches = _stretches(sample)
    return [
        types.Transition(
            ob=tinker.ModelInput.from_ints(tokens[:begin]),
            ac=TokensWithLogprobs(tokens[begin:end], logprobs[begin:end]),
            reward=0.0,
            episode_done=end == stretches[-1][1],
        )
        for begin, end in stretches
    ]


def _stretches(sample: TrainingSample) -> list[tuple[int, int]]:
    """The positions [begin, end) of the tokens that are trained, in order."""
    found, begin = [], 0
    for on, stretch in groupby(sample.mask):
        end = begin + sum(1 for _ in stretch)
        if on:
            found.append((begin, end))
        begin = end
    return found


def _trained(sample: TrainingSample) -> int:
    """How many tokens the cookbook trains: a sequence's first one is no target."""
    return sum(sample.mask[1:])


def _why_lost(rollout: Rollout) -> str:
    """Why some tokens would not be trained; empty: their prompts are the cause."""
    first = any(sample.mask[0] for sample in rollout.samples)
    return "the first token of a sequence can't be trained" if first else ""


def _metrics(rollout: Rollout, actor: str) -> dict[str, float | int]:
    known = {
        version
        for sample in rollout.by_actor[actor]
        for version in sample.weights_versions
        if version != NO_VERSION
    }
    versions = {"weights/oldest": min(known), "weights/newest": max(known)} if known else {}
    components = {f"reward/{name}": value for name, value in rollout.components.items()}
    return {**components, **versions, "truncated": float(rollout.truncated)}


def _errors(group: RolloutGroup) -> list[types.RolloutError]:
    failed = [types.RolloutError(one.reason, f"{one.boundary}: {one.why}") for one in group.failed]
    unscored = "the rollout has no verdict. A missing verdict does not count as a reward of 0"
    return failed + [types.RolloutError("Unscored", unscored) for _ in group.unscored]


def _distribution(params: SamplingParams) -> tokens_pb2.LogprobDistribution.ValueType:
    """At temperature 1 and without a cut the model's own distribution is that of sampling. Tinker
    does not document which one it reports otherwise.
    """
    plain = params.temperature in (None, 1.0) and params.top_p in (None, 1.0)
    if plain and (params.top_k or 0) <= 0:
        return tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    return tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
