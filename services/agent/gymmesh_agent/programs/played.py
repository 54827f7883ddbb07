"""An episode that the environment plays itself, with the gateway as its model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.loop import Completion
from gymmesh_runtime.errors import MeshError

# What it has to end by itself once its model calls are answered with errors.
_GRACE_S: Final = 10.0


async def wait_for_episode(
    play: Awaitable[None], stopped: asyncio.Event, timeout_s: float
) -> Completion:
    """How the episode completes. When this returns, the episode has ended or is being stopped.

    play: the environment's call. stopped: set when the rollout is over, for example at a limit of
    the policy; the gateway then decides how it ends. Raises what `play` raises before that.
    """
    work = asyncio.ensure_future(play)
    stop = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((work, stop), timeout=timeout_s, return_when="FIRST_COMPLETED")
        if stopped.is_set():
            # Some take the error for the episode's end, and judge what there is.
            await asyncio.wait((work,), timeout=_GRACE_S)
        elif work.done():
            work.result()
        else:
            return Completion(rollout_pb2.STOP_REASON_PROGRAM_TIMEOUT)
        return Completion.program_exited()
    finally:
        work.cancel()
        stop.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)


def check_played(environment: str, answers: int) -> None:
    """Raises PROGRAM_FAILED for an episode in which the model answered no call, because nothing
    of the policy would be judged.
    """
    if not answers:
        raise MeshError(
            errors_pb2.ERROR_REASON_PROGRAM_FAILED,
            f"the environment {environment!r} played an episode, but the model answered no call",
            metadata={"program": "environment"},
        )
