"""Has groups judged by the agents that ran them."""

from __future__ import annotations

from gymmesh_client.agents import AgentConnector
from gymmesh_client.groups.judging import HeldRollout, group_request, judged, unjudged
from gymmesh_runtime.errors import MeshError


async def judge(
    group: list[HeldRollout], connect: AgentConnector, timeout_s: float
) -> list[HeldRollout]:
    """The group with its verdicts; with pending ones that say why, if it cannot be judged.

    Args:
        connect: finds agents.
        timeout_s: seconds that judging it may take.
    """
    try:
        peer = await connect(group[0].task.agent)
        reply = await peer.JudgeGroup(group_request(group), timeout=timeout_s)
        return judged(group, reply)
    except (MeshError, ValueError) as error:
        return unjudged(group, f"the group could not be judged: {error}")
