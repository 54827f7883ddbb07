"""A group's rewards, compared by rollout. Pure.

slime compares rewards of a group by the places of its samples in the batch. If a rollout has
several samples, the places don't fit, and slime would compare all rewards of the batch. Here each
rollout has one value, and rollouts that failed or were not judged have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, Final

from slime.rollout.filter_hub.base_types import DynamicFilterOutput

from gymmesh_trainers.slime.samples import FACTS

_DIVIDED: Final = ("grpo", "gspo", "cispo")
_CENTRED: Final = (*_DIVIDED, "reinforce_plus_plus_baseline")
_EPSILON: Final = 1e-6  # slime's own


def compares_groups(args: Any) -> bool:
    """Whether slime is configured to compare the rewards of a group."""
    return bool(args.rewards_normalization) and args.advantage_estimator in _CENTRED


def group_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """The rewards of samples, and the rewards that slime trains with, for
    `--custom-reward-post-process-path`.

    The latter follow slime's formula: r − m, with the mean m of the actor's rewards in the group,
    one for each rollout. If `--advantage-estimator` and `grpo_std_normalization` say so, this is
    divided by s + 1e-6, with the sample standard deviation s. 0.0 for samples that train no token.
    """
    raw = [float(one.reward) for one in samples]
    if not compares_groups(args):
        return raw, raw
    divided = args.advantage_estimator in _DIVIDED and args.grpo_std_normalization
    judged: dict[Hashable, dict[Hashable, float]] = defaultdict(dict)
    for one in samples:
        if _trained(one):
            judged[_group(one)][_rollout(one)] = float(one.reward)
    compared = {key: _compared(rewards, divided) for key, rewards in judged.items()}
    return raw, [compared[_group(one)][_rollout(one)] if _trained(one) else 0.0 for one in samples]


def rewards_differ(args: Any, group: Sequence[Any], **options: Any) -> Any:
    """Whether the rewards of a group's judged rollouts differ, for
    `--dynamic-sampling-filter-path`. slime's own filter can't read several samples of a rollout.
    """
    rewards = {(_facts(one)["actor"], float(one.reward)) for one in _flat(group) if _trained(one)}
    keep = len(rewards) > len({actor for actor, _ in rewards})
    reason = None if keep else ("zero_std" if rewards else "no_reward")
    return DynamicFilterOutput(keep=keep, reason=reason)


def _compared(rewards: dict[Hashable, float], divided: bool) -> dict[Hashable, float]:
    values = list(rewards.values())
    mean = fmean(values)
    divisor = stdev(values) + _EPSILON if divided and len(values) > 1 else 1.0
    return {key: (value - mean) / divisor for key, value in rewards.items()}


def _flat(group: Iterable[Any]) -> Iterable[Any]:
    for one in group:
        yield from one if isinstance(one, list) else [one]


def _facts(sample: Any) -> dict[str, Any]:
    found: dict[str, Any] = sample.metadata[FACTS]
    return found


def _trained(sample: Any) -> bool:
    return bool(_facts(sample)["trained"])


def _group(sample: Any) -> Hashable:
    return sample.group_index, _facts(sample)["actor"]


def _rollout(sample: Any) -> Hashable:
    found: Hashable = sample.rollout_id
    return found
