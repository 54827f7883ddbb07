"""Copies of rollouts that are too large to be made on the loop."""

from __future__ import annotations

import asyncio
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import RolloutParts

LARGE_BYTES: Final = 256 * 1024
"""What is made of a rollout with as many bytes of events is made in a thread. That costs about 0.1
ms, and the loop waits for 5 ms at most, Python's switch interval.
"""


async def message_of(parts: RolloutParts) -> pb.Rollout:
    """As `RolloutParts.message`. Nothing may change the parts meanwhile."""
    return await asyncio.to_thread(parts.message) if parts.size >= LARGE_BYTES else parts.message()
