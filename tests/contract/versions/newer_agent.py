"""An agent of the next minor version: `python -m tests.contract.versions.newer_agent`.

Run with the next stubs first in PYTHONPATH. What it streams goes by the task's id; it prints its
address and serves until it is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from gymmesh.agent.v1 import agent_pb2, agent_pb2_grpc
from gymmesh.rollout.v1 import rollout_pb2
from tests.contract.versions.next_contract import VERSION
from tests.support.rollouts import answer, completed, make_events, verdict

# Of the next contract, which the types of this one do not know.
pb: Any = rollout_pb2
# Methods that are not written below answer UNIMPLEMENTED, which its type forbids.
_Servicer: Any = agent_pb2_grpc.AgentServiceServicer


def _events(request: agent_pb2.RunRolloutRequest) -> list[Any]:
    bodies: list[Any] = [answer("five"), verdict(1.0), completed()]
    if request.task.task_id == "ignorable":
        bodies.insert(0, pb.RolloutEvent(noted=pb.Annotation(key="n"), ignorable=True))
    elif request.task.task_id == "not_ignorable":
        bodies.insert(0, pb.RolloutEvent(moved=pb.Annotation(key="m")))
    elif request.task.task_id == "stop_reason":
        bodies[-1].completed.stop_reason = pb.STOP_REASON_BORED
    bodies[-1].completed.counts.detours = 3
    return make_events(request.rollout_id, request.attempt or 1, *bodies, task=request.task)


class NewerAgent(_Servicer):  # type: ignore[misc]  # of any type, see above
    """Runs rollouts that are scripted."""

    async def GetAgent(self, request: Any, context: Any) -> agent_pb2.GetAgentResponse:
        return agent_pb2.GetAgentResponse(
            name="tool_loop", instance_id="newer-0", contract_version=VERSION
        )

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: Any
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        for event in _events(request):
            yield agent_pb2.RunRolloutResponse(event=event)


async def main() -> None:
    """Serves until killed."""
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(NewerAgent(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
