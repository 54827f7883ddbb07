"""Whether a trainer trains each token that was sampled, once, behind the prompt that it was sampled
behind.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[Sequence[int], Sequence[int]]
"""A sequence of token ids, and its mask."""


def trains_each_once(calls: Sequence[tuple[list[int], list[int]]], rows: Sequence[Row]) -> bool:
    """calls: the prompt and the sampled ids of each; rows: what the trainer trains."""
    trained = 0
    for prompt, sampled in calls:
        whole, begin = [*prompt, *sampled], len(prompt)
        found = [
            mask[begin : len(whole)]
            for tokens, mask in rows
            if list(tokens[: len(whole)]) == whole and any(mask[begin : len(whole)])
        ]
        if len(found) != 1 or not all(found[0]):
            return False
        trained += len(sampled)
    return trained == sum(sum(mask) for _, mask in rows)
