"""Has groups judged by the agents that ran them."""

from __future__ import annotations

from gymmesh_client.agents import AgentConnector
from gymmesh_client.groups.judging import HeldRollout, group_request, judged, unjudged
from gymmesh_runtime.errors import MeshError


class GroupJudge:
    """Has groups judged.

    Args:
        connect: finds agents.
        timeout_s: seconds that judging a group may take.
    """

    def __init__(self, connect: AgentConnector, timeout_s: float) -> None:
        self._connect = connect
        self._timeout_s = timeout_s

    async def judge(self, group: list[HeldRollout]) -> list[HeldRollout]:
        """The group with its verdicts; with pending ones that say why, if it cannot be judged."""
        try:
            peer = await self._connect(group[0].task.agent)
            reply = await peer.JudgeGroup(group_request(group), timeout=self._timeout_s)
            return judged(group, reply)
        except (MeshError, ValueError) as error:
            return unjudged(group, f"the group could not be judged: {error}")
