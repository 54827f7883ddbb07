"""Policies that say what a test wants, as engines of token ids."""

from __future__ import annotations

from typing import Any

from gymmesh_trainers import (
    Generation,
    RolloutGroup,
    SamplingParams,
    TokenBackend,
    TrainerCollector,
)
from tests.handoff.trainers.test_append_only import TASK


class Answers:
    """Says these texts in turn; an exception is raised.

    Attributes:
        calls: the prompt and the sampled ids of each call.
    """

    def __init__(self, tokenizer: Any, *texts: str | Exception) -> None:
        self.tokenizer = tokenizer
        self.calls: list[tuple[list[int], list[int]]] = []
        self._texts = iter(texts)

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        text = next(self._texts)
        if isinstance(text, Exception):
            raise text
        ids = [*self.tokenizer.encode(text), self.tokenizer.eos_token_id]
        self.calls.append((prompt, ids))
        return Generation(ids, [-0.25 * (place + 1) for place in range(len(ids))])


async def group_of(
    place: Any, backend: TokenBackend, repeats: int = 1, **settings: Any
) -> RolloutGroup:
    """A group of one task, its rollouts one after the other."""
    async with (
        TrainerCollector(
            place, model=backend, repeats=repeats, max_attempts=1, concurrency=1, **settings
        ) as collector,
        collector.step([TASK]) as step,
    ):
        [group] = [one async for one in step]
    return group
