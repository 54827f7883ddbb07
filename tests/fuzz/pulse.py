"""A good rollout now and then, while others send what is none: it must get its reward."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

import orjson

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import new_message
from tests.fuzz.calls import Call, answer_to
from tests.fuzz.mesh import Mesh

_RUN: Final = "gymmesh.agent.v1.AgentService/RunRollout"
_EVERY_S: Final = 5.0


class Pulse:
    """Runs them, with `name` in their ids. `problems` are those of the ones that failed, `rollouts`
    counts all.
    """

    def __init__(self, mesh: Mesh, name: str) -> None:
        self._name = name
        self._channel: Any = mesh.channel(mesh.of("agent")[0].address)
        self._metadata = mesh.metadata()
        self.problems: list[str] = []
        self.rollouts = 0

    async def run(self) -> None:
        """For ever."""
        for number in itertools.count():
            self.problems += await self.once(number)
            await asyncio.sleep(_EVERY_S)

    async def once(self, number: int) -> list[str]:
        """One rollout: what is wrong with it."""
        request = agent_pb2.RunRolloutRequest(
            task=_sum(abs(number) % 100), rollout_id=f"pulse-{self._name}-{number}", run_id="pulse"
        )
        call = Call(_RUN, [request.SerializeToString()], self._metadata, server_streaming=True)
        answer = await answer_to(self._channel, call)
        self.rollouts += 1
        events = [agent_pb2.RunRolloutResponse.FromString(one).event for one in answer.messages]
        if answer.code == "OK" and any(one.verified.verification.reward == 1.0 for one in events):
            return []
        last = events[-1] if events else None
        return [
            "a valid rollout during the run did not get its reward: "
            f"{answer.code} {answer.details} {last}"
        ]

    async def close(self) -> None:
        """Hangs up."""
        await self._channel.close()


def _sum(number: int) -> rollout_pb2.Task:
    task = rollout_pb2.Task(
        task_id=f"sum-{number}",
        environment="math",
        payload_json=orjson.dumps({"expected_answer": str(number + 1)}),
    )
    task.params.input.append(new_message("user", f"What is {number} + 1?"))
    return task
