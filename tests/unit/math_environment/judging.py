"""The math environment by itself, without a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymmesh_resource.environments.math import MathEnvironment


@asynccontextmanager
async def judging(timeout_s: float) -> AsyncIterator[MathEnvironment]:
    """One that has one worker process, until the end of the block."""
    environment = MathEnvironment(judge_workers=1, judge_timeout_s=timeout_s)
    try:
        yield environment
    finally:
        await environment.close_processes()
