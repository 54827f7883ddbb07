"""How often a trainer trains the tokens of a model call, behind the prompt that they were sampled
behind.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[Sequence[int], Sequence[int]]
"""A sequence of token ids, and its mask."""


def times_trained(calls: Sequence[tuple[list[int], list[int]]], rows: Sequence[Row]) -> list[int]:
    """Of each call, how many rows train all of its sampled tokens.

    calls: the prompt and the sampled ids of each; rows: what the trainer trains. Asserts that the
    rows train nothing else.
    """
    found = []
    for prompt, sampled in calls:
        whole, begin = [*prompt, *sampled], len(prompt)
        found.append(
            sum(
                list(tokens[: len(whole)]) == whole and all(mask[begin : len(whole)])
                for tokens, mask in rows
            )
        )
    counted = sum(times * len(sampled) for times, (_, sampled) in zip(found, calls, strict=True))
    assert counted == sum(sum(mask) for _, mask in rows)
    return found
