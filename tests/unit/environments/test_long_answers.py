"""Answers of 10 MB do not hold up the event loop, and get a verdict."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import pytest

from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.code.environment import CodeEnvironment
from gymmesh_resource.environments.reasoning_gym import ReasoningGymEnvironment
from gymmesh_responses import new_message
from tests.support.optional import require
from tests.unit.resource.served import served, task
from tests.unit.sandbox.machine import require_bubblewrap

require_bubblewrap()
require(importlib.util.find_spec("reasoning_gym"), "reasoning-gym", "pip install reasoning-gym")

_SIZE = 10_000_000
# Seconds that the loop may be held up. Reading such texts takes several, and those of `code` took
# hours.
_HELD_UP = 2.5
_PUZZLE = {"question": "?", "answer": "5", "metadata": {"source_dataset": "chain_sum"}}
_PROGRAM = {"verifier_metadata": {"unit_tests": {"inputs": ["1\n"], "outputs": ["1\n"]}}}


def _puzzles() -> Environment[Any]:
    return ReasoningGymEnvironment(score_workers=1)


def _programs() -> Environment[Any]:
    return CodeEnvironment(concurrency=1, warm=0, memory_mb=256)


@pytest.mark.parametrize(
    ("make", "row", "text"),
    [
        (_puzzles, _PUZZLE, "{" * _SIZE),
        (_puzzles, _PUZZLE, "\\boxed{" * (_SIZE // 7)),
        (_programs, _PROGRAM, "{" * _SIZE),
        (_programs, _PROGRAM, "```" + " " * _SIZE + "x"),
        (_programs, _PROGRAM, "```\n" + "a,\n" * (_SIZE // 3)),
        (_programs, _PROGRAM, "```python\n" + "x=1\n" * (_SIZE // 4) + "```"),
    ],
    ids=["braces", "boxes", "no program", "a line", "an open block", "a program"],
)
async def test_a_long_answer(
    make: Callable[[], Environment[Any]], row: dict[str, Any], text: str
) -> None:
    async with served(make(), verify_timeout_s=300.0) as mesh:
        beating = asyncio.create_task(_longest_pause())
        await asyncio.sleep(0)
        call = mesh.verify(of=task(**row), transcript=[new_message("assistant", text)], timeout=500)
        verdict = await call
        beating.cancel()
        longest = await beating
    assert verdict.reward == 0.0
    assert verdict.ByteSize() < 1_000_000
    assert longest < _HELD_UP


async def _longest_pause() -> float:
    """Seconds between two turns of the loop at most, until it is cancelled."""
    longest, last = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest
