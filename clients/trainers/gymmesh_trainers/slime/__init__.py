"""slime: a generate function, and the functions that its loop needs for several samples.

A module for `--custom-generate-function-path shop_slime.generate`:

    from gymmesh_trainers.slime import GymmeshGenerate
    generate = GymmeshGenerate("shop.py:Shop")

and, so that a group's rewards are compared by rollout and not by sample:

    --custom-reward-post-process-path gymmesh_trainers.slime.group_rewards
    --dynamic-sampling-filter-path gymmesh_trainers.slime.rewards_differ    (instead of slime's own)

The task of a row is the JSON text or the object under `task` of its `metadata`, or else its prompt
with the other keys of `metadata`. Tokens are sampled at slime's SGLang router.

generation.py  the generate function
samples.py     slime's samples of a rollout (pure)
rewards.py     a group's rewards, compared by rollout (pure)

Interface: slime 0.3.1 and its main branch of August 2026, `slime.rollout.sglang_rollout`. Tried
with slime's own rollout loop, data source, conversion for training and schedule; not in its
trainer, which wants GPUs.
"""

from gymmesh_trainers.slime.generation import GymmeshGenerate
from gymmesh_trainers.slime.rewards import group_rewards, rewards_differ

__all__ = ["GymmeshGenerate", "group_rewards", "rewards_differ"]
