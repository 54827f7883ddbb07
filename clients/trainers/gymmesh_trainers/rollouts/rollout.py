"""Finished rollouts and their groups, as a trainer reads them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.boundaries import boundary_name
from gymmesh_client.rollout import final_call
from gymmesh_resource import Task
from gymmesh_responses import text_of
from gymmesh_runtime.errors import from_status
from gymmesh_trainers.rollouts.credits import credits_of
from gymmesh_trainers.rollouts.samples import TrainingSample, samples_of
from gymmesh_trainers.rollouts.token_counts import TokenCounts

_SHOWN = 60  # characters of what was said
EPSILON = 1e-4
"""Keeps `advantages` from dividing by nothing; TRL's GRPOTrainer has the same."""


def advantages(rewards: Sequence[float], *, scale: bool = True) -> list[float]:
    """Rewards relative to those of their group.

    With n rewards r, their mean m and sample standard deviation s (divided by n − 1):

        A_i = (r_i − m) / (s + 1e-4)

    as in GRPO (Shao et al. 2024, "DeepSeekMath", section 4.1) and TRL's GRPOTrainer. With
    `scale=False` there is no division (Liu et al. 2025, "Understanding R1-Zero-Like Training").
    A single reward, or rewards that are all equal, have advantages of zero: there is nothing to
    learn from them.

    Raises ValueError for a reward that is not finite.
    """
    if not all(map(math.isfinite, rewards)):
        raise ValueError("rewards: each must be a finite number")
    if len(set(rewards)) < 2:
        return [0.0] * len(rewards)
    mean = fmean(rewards)
    divisor = stdev(rewards) + EPSILON if scale else 1.0
    return [(reward - mean) / divisor for reward in rewards]


@dataclass(frozen=True)
class Rollout:
    """A completed rollout.

    `tokens`, `mask`, `logprobs` and `weights_versions` are those of the rollout's only sample. They
    raise ValueError if the rollout has no sample or several samples; read `samples` then.

    Attributes:
        message: the whole rollout as the contract's message.
        task: the rollout's task.
        staleness: how many versions the oldest weights are behind the newest known version; 0 if
            no version is known. Tokens that were sampled before any version was announced are
            treated as one version older than the first announced version.
        stale: whether `staleness` exceeds `max_staleness`.
        side_data_folders: where the samples look for side data, after the place that its reference
            names.
    """

    message: pb.Rollout
    task: Task
    staleness: int = 0
    stale: bool = False
    side_data_folders: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        said = " ".join(self.text.split())
        shown = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"
        reward = "none" if self.reward is None else f"{self.reward:g}"
        why = self.message.verified.verification.explanation
        return (
            f"<Rollout of {self.task.id!r}: reward {reward}{f' ({why})' if why else ''}, "
            f"{self.stop_reason}, {shown!r}>"
        )

    @cached_property
    def samples(self) -> list[TrainingSample]:
        """One sample for each path of model calls; empty if the model returns no tokens."""
        return samples_of(
            self.message.model_calls, credits_of(self.message), self.side_data_folders
        )

    @cached_property
    def counts(self) -> TokenCounts:
        """How many tokens were sampled, and how many of them the samples train."""
        return TokenCounts.of(self.message, self.samples)

    @property
    def tokens(self) -> list[int]:
        """The token ids that the model read and wrote."""
        return self._only.tokens

    @property
    def mask(self) -> list[int]:
        """1 for a sampled token that is to be trained, otherwise 0; as long as `tokens`."""
        return self._only.mask

    @property
    def logprobs(self) -> list[float]:
        """Log probabilities of the sampled tokens, 0.0 for other tokens; as long as `tokens`, or
        empty.
        """
        return self._only.logprobs

    @property
    def weights_versions(self) -> list[int]:
        """The weights' version of each token, -1 if it was not sampled; as long as `tokens`."""
        return self._only.weights_versions

    @property
    def reward(self) -> float | None:
        """The verdict's reward; None if the rollout was not judged, which is not a reward of 0."""
        verdict = self.message.verified.verification
        return verdict.reward if verdict.HasField("reward") else None

    @property
    def components(self) -> dict[str, float]:
        """The parts of the reward by name."""
        verdict = self.message.verified.verification
        return {one.name: one.value for one in verdict.components}

    def reward_of(self, actor: str) -> float | None:
        """An actor's reward: the verdict's component with the actor's name, otherwise the rollout's
        reward. The root agent, whose name is empty, has the rollout's reward.
        """
        return self.components.get(actor, self.reward) if actor else self.reward

    @property
    def last_sample(self) -> TrainingSample | None:
        """The sample for a trainer that accepts one sample: the root agent's last path, otherwise
        the last of all paths. Its reward is `reward_of` its actor. None if the rollout has no
        sample.
        """
        found = [one for one in self.samples if not one.actor] or self.samples
        return found[-1] if found else None

    @property
    def by_actor(self) -> dict[str, list[TrainingSample]]:
        """The samples of each actor; the root agent's name is empty."""
        found: dict[str, list[TrainingSample]] = {}
        for sample in self.samples:
            found.setdefault(sample.actor, []).append(sample)
        return found

    @property
    def id(self) -> str:
        """The rollout's id."""
        return self.message.rollout_id

    @property
    def stop_reason(self) -> str:
        """Why the rollout ended, such as `MODEL_FINISHED`."""
        value = self.message.completed.stop_reason
        return pb.StopReason.Name(value).removeprefix("STOP_REASON_")

    @property
    def truncated(self) -> bool:
        """Whether a limit of the policy cut the rollout short."""
        return self.stop_reason in ("MAX_STEPS", "MAX_OUTPUT_TOKENS", "CONTEXT_LENGTH", "ABORTED")

    @property
    def text(self) -> str:
        """The root agent's last message, or the last message of all if it called no model; empty if
        that was not text.
        """
        last = final_call(self.message)
        output = last.response.output if last is not None else ()
        return "".join(text_of(item) for item in output if item.HasField("message"))

    @property
    def tools_used(self) -> list[str]:
        """The names of the tools that were called, in order."""
        return [one.completed.name for one in self.message.tool_calls]

    @property
    def oldest_weights(self) -> int | None:
        """The oldest version of the weights that sampled tokens of the rollout; None if it is not
        known, for example if tokens were sampled before any version was announced.
        """
        known = [one for one in versions_of(self.message) if one is not None]
        return min(known) if known and None not in versions_of(self.message) else None

    @property
    def _only(self) -> TrainingSample:
        if len(self.samples) != 1:
            raise ValueError(
                f"rollout {self.id} has {len(self.samples)} samples; use `samples`"
                if self.samples
                else f"rollout {self.id} has no tokens: the model returned no token ids"
            )
        return self.samples[0]


@dataclass(frozen=True)
class FailedRollout:
    """A rollout without a result, because infrastructure failed. It has no reward.

    Attributes:
        message: the part of the rollout before the failure.
    """

    message: pb.Rollout
    task: Task

    def __repr__(self) -> str:
        return f"<FailedRollout of {self.task.id!r}: {self.boundary} {self.reason}, {self.why}>"

    @property
    def id(self) -> str:
        """The rollout's id."""
        return self.message.rollout_id

    @property
    def boundary(self) -> str:
        """The boundary at which the rollout failed, such as `MODEL`."""
        return boundary_name(self.message.failed.failure.boundary)

    @property
    def reason(self) -> str:
        """The reason in the contract's names, such as `MODEL_TIMEOUT`."""
        return from_status(self.message.failed.failure.status).reason_name

    @property
    def why(self) -> str:
        """The cause, in one sentence."""
        return self.message.failed.failure.status.message


@dataclass(frozen=True)
class RolloutGroup:
    """The repeats of a task.

    Attributes:
        task: the task.
        rollouts: the rollouts with a reward, by repeat.
        failed: the rollouts that failed. They are never among `rollouts` and have no reward.
        unscored: completed rollouts without a reward (scored later, or not at all).
        stale: rollouts that were dropped because their weights were too old.
        step: the number of the step that requested the group, from 1.
        carried: whether an earlier step requested the group than the step that yields it.
    """

    task: Task
    rollouts: list[Rollout] = field(default_factory=list)
    failed: list[FailedRollout] = field(default_factory=list)
    unscored: list[Rollout] = field(default_factory=list)
    stale: list[Rollout] = field(default_factory=list)
    step: int = 1
    carried: bool = False

    def __repr__(self) -> str:
        rewards = ", ".join(f"{one:g}" for one in self.rewards)
        lost = (len(self.failed), len(self.unscored), len(self.stale))
        names = ("failed", "unscored", "stale")
        more = "".join(
            f", {count} {name}" for count, name in zip(lost, names, strict=True) if count
        )
        return f"<RolloutGroup of {self.task.id!r}: rewards [{rewards}]{more}>"

    @property
    def rewards(self) -> list[float]:
        """The reward of each of `rollouts`."""
        return [one.reward for one in self.rollouts if one.reward is not None]

    @cached_property
    def advantages(self) -> list[float]:
        """A_i = (r_i − mean) / (standard deviation + 1e-4) of each of `rollouts`; see
        `gymmesh_trainers.advantages`. Zeros where `no_spread`.
        """
        return advantages(self.rewards)

    @property
    def actors(self) -> list[str]:
        """The names of the actors that called the model in `rollouts` and are trained; the root
        agent's name is empty.
        """
        return sorted({actor for one in self.rollouts for actor in one.by_actor})

    def rewards_of(self, actor: str) -> list[float | None]:
        """An actor's reward in each of `rollouts` (see `Rollout.reward_of`); None for a rollout in
        which the actor did not call the model.
        """
        return [one.reward_of(actor) if actor in one.by_actor else None for one in self.rollouts]

    def advantages_of(self, actor: str) -> list[float | None]:
        """An actor's advantages, computed from `rewards_of` as `advantages`. None where
        `rewards_of` has None; these rollouts are not part of the mean.
        """
        rewards = self.rewards_of(actor)
        found = iter(advantages([one for one in rewards if one is not None]))
        return [None if one is None else next(found) for one in rewards]

    @property
    def no_spread(self) -> bool:
        """Whether all rewards are equal, or there is none: the group teaches nothing."""
        return len(set(self.rewards)) < 2


def versions_of(rollout: pb.Rollout) -> set[int | None]:
    """The versions of the weights that sampled a rollout's tokens; None among them: some were
    sampled before any version was announced. Those of models that are not trained don't count.
    """
    found: set[int | None] = set()
    for call in rollout.model_calls:
        if not call.trainable:
            continue
        spans = call.tokens.weights
        found.update(span.version for span in spans)
        if call.tokens.output_token_ids and (not spans or spans[0].first_token):
            found.add(None)
    return found
