"""Sampled tokens that a trainer can't receive.

A rollout has several samples if its history was rewritten, an agent branched, or several actors
called the model. Samples are merged if their tokens allow it. If sampled tokens still don't fit,
the hook refuses the rollout, or warns with the number of lost tokens. Tokens are never lost
silently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from gymmesh_client import UserError
from gymmesh_trainers.rollouts import Rollout, TrainingSample, merged

Lost = Literal["refuse", "warn"]
"""What becomes of a rollout with sampled tokens that the trainer has no room for."""

_LOG: Final = logging.getLogger("gymmesh.trainers")


class LostTokens:
    """Chooses the samples that a trainer can receive.

    Args:
        lost: refuse a rollout that would lose sampled tokens, or warn.
        trainer: the trainer's name, for messages.
        several: the hook's option with which the trainer receives all samples; empty: the option is
            already set, or does not exist.

    Attributes:
        sampled: the tokens that the policy sampled so far, in all rollouts.
        trained: how many of these tokens were passed to the trainer.

    Raises ValueError for an invalid `lost`.
    """

    def __init__(self, lost: Lost, trainer: str, several: str = "") -> None:
        if lost not in ("refuse", "warn"):
            raise ValueError(f"lost: must be 'refuse' or 'warn', not {lost!r}")
        self.sampled = 0
        self.trained = 0
        self._refuses = lost == "refuse"
        self._trainer = trainer
        self._several = several

    def one(self, rollout: Rollout, most: int | None = None) -> TrainingSample | None:
        """The sample for a trainer with room for one: the root agent's last path, else the last of
        all, with all that can be merged into it. None where the rollout has no sample.

        most: the completion tokens that there is room for; None: any number.

        Raises UserError where sampled tokens are lost and that is refused.
        """
        found = self.all_of_one_reward(rollout, most, room=1)
        return found[-1] if found else None

    def all_of_one_reward(
        self, rollout: Rollout, most: int | None = None, *, room: int | None = None
    ) -> list[TrainingSample]:
        """The samples for a trainer that gives all samples of a rollout the same reward, merged
        where possible. The last is the root agent's last path, else the last of all; it decides
        the reward. Empty where the rollout has no sample.

        room: how many samples there is room for; None: any number. most, raises: as in `one`.
        """
        kept = kept_samples(rollout)[-room if room else 0 :]
        trained = sum(_trained(sample, most) for sample in kept)
        self.account(rollout, trained, kept)
        return kept

    def account(
        self,
        rollout: Rollout,
        trained: int,
        kept: Sequence[TrainingSample],
        why: str = "",
        remedy: str = "",
    ) -> None:
        """Count what is handed over of a rollout; refuse it, or warn, where it is not all.

        trained: the tokens handed over, which are of `kept`. why, remedy: why the others are not,
        and what may be done about it; without `why` both are found out.
        Raises UserError.
        """
        sampled = rollout.counts.sampled
        if trained < sampled:
            lost = sampled - trained
            if not why:
                why, remedy = _why(rollout, kept, self._several)
            sentence = (
                f"rollout {rollout.id} of task {rollout.task.id}: {self._trainer} can't represent "
                f"{lost} of its {sampled} sampled tokens ({lost / sampled:.0%}): {why}"
            )
            if self._refuses:
                accept = "accept the loss with lost='warn'"
                advice = f"{remedy}, or {accept}" if remedy else accept
                raise UserError(f"{sentence}. {advice[0].upper()}{advice[1:]}")
            _LOG.warning("%s. These tokens are not trained", sentence)
        self.sampled += sampled
        self.trained += trained

    @property
    def counts(self) -> Mapping[str, int]:
        """`tokens_sampled`, `tokens_trained` and `tokens_lost` so far."""
        lost = self.sampled - self.trained
        return {
            "tokens_sampled": self.sampled,
            "tokens_trained": self.trained,
            "tokens_lost": lost,
        }


def kept_samples(rollout: Rollout) -> list[TrainingSample]:
    """The samples with the reward of `Rollout.last_sample`, merged where tokens allow; last the one
    that trains it. Pure.
    """
    last = rollout.last_sample
    if last is None:
        return []
    reward = rollout.reward_of(last.actor)
    alike = [one for one in rollout.samples if rollout.reward_of(one.actor) == reward]
    return sorted(merged(alike), key=lambda one: one.holds(last))


def paths_left_out(rollout: Rollout, kept: Sequence[TrainingSample]) -> int:
    """How many samples of the rollout are in none of those that are handed over."""
    return sum(not any(one.holds(sample) for one in kept) for sample in rollout.samples)


def _trained(sample: TrainingSample, most: int | None) -> int:
    return sample.trained if most is None else sum(sample.completion_mask[:most])


def _why(rollout: Rollout, kept: Sequence[TrainingSample], several: str) -> tuple[str, str]:
    """Why not all tokens can be handed over, and what may be done about it. Pure."""
    left = [one for one in rollout.samples if not any(each.holds(one) for each in kept)]
    if left:
        return _why_left(rollout, left, kept, several)
    if rollout.counts.trained < rollout.counts.sampled:
        return (
            "prompts differ from the earlier tokens, which allow_token_divergence permits",
            "collect without allow_token_divergence",
        )
    return (
        "the tokens exceed the trainer's completion limit",
        "raise the trainer's completion limit",
    )


def _why_left(
    rollout: Rollout,
    left: Sequence[TrainingSample],
    kept: Sequence[TrainingSample],
    several: str,
) -> tuple[str, str]:
    """As `_why`, where samples are left out: for want of room, or as their actor's reward is
    another, or both.
    """
    if not kept:
        return "the verdict has no reward for these tokens", ""
    trained = {rollout.reward_of(one.actor) for one in kept}
    other = [one for one in left if rollout.reward_of(one.actor) not in trained]
    reasons, remedies = [], []
    if len(other) < len(left):
        samples = len(rollout.samples)
        reasons.append(f"the rollout has {samples} samples, but the trainer accepts {len(kept)}")
        # An actor that already has a sample has a history that was rewritten or branched.
        seen = [one.actor for one in (*kept, *left) if one not in other]
        if len(set(seen)) < len(seen):
            remedies.append("keep the history append-only")
        other_trainer = "use a trainer that accepts several samples"
        remedies.append(f"set {several}" if several else other_trainer)
    if other:
        names = " and ".join(sorted({repr(one.actor) for one in other}))
        reasons.append(f"actor {names} has its own reward, but the trainer accepts one reward")
        remedies.append("use a trainer that accepts a reward for each actor")
    return "; ".join(reasons), ", ".join(remedies)
