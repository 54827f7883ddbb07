"""A minimal agent: finds its peers in a registry and runs one attempt after another.

What an attempt is, step by step, stands in `attempt.py`; here is the service around it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from google.rpc import status_pb2

from gymmesh.agent.v1 import agent_pb2, agent_pb2_grpc
from gymmesh.discovery.v1 import discovery_pb2, discovery_pb2_grpc
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2_grpc
from tests.conformance.minimal.attempt import Attempt, sessions_closed
from tests.conformance.minimal.status import (
    OPTIONS,
    fail,
    fail_with,
    make_status,
    require,
    status_of,
)
from tests.conformance.minimal.verdicts import problem

_AGENT: Final = "gymmesh.agent.v1.AgentService"
_RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
_MARGIN_S: Final = 0.15  # before the call's deadline, for the last events to arrive


class Finder:
    """Finds the address of a service by asking the registry; one channel an address."""

    def __init__(self, registry: str) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._registry: Any = discovery_pb2_grpc.DiscoveryServiceStub(self.channel(registry))

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to an address."""
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=OPTIONS)
        return self._channels[address]

    async def find(self, service: str, name: str) -> discovery_pb2.Instance | None:
        """A serving instance, or None."""
        request = discovery_pb2.ListInstancesRequest(service=service, name=name)
        found = await self._registry.ListInstances(request, timeout=5.0)
        for instance in found.instances:
            if instance.health == discovery_pb2.HEALTH_SERVING:
                return instance  # type: ignore[no-any-return]  # the stub is untyped here
        return None

    async def close(self) -> None:
        """Closes the channels."""
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))


class MinimalAgent(agent_pb2_grpc.AgentServiceServicer):
    """The service."""

    def __init__(self, registry: str) -> None:
        self._finder = Finder(registry)
        self._running: set[tuple[str, int]] = set()
        self._about = agent_pb2.GetAgentResponse(
            name="minimal",
            version="1",
            description="The smallest agent that conforms.",
            model_roles=["policy"],
            instance_id=f"minimal-{secrets.token_hex(4)}",
            contract_version="1.0",
        )

    async def close(self) -> None:
        """Closes its channels, once no session is left to be closed over them."""
        await sessions_closed()
        await self._finder.close()

    async def GetAgent(self, request: Any, context: Any) -> Any:
        """What it is."""
        return self._about

    async def Collect(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Not offered."""
        method = f"{_AGENT}/Collect"
        await fail(context, grpc.StatusCode.UNIMPLEMENTED, "NOT_OFFERED", "no", method=method)
        yield agent_pb2.CollectResponse()  # makes this a stream

    async def JudgeGroup(self, request: Any, context: Any) -> Any:
        """Passes a group on to its environment, and the verdicts back."""
        method = f"{_AGENT}/JudgeGroup"
        await require(context, request, method, "group")
        found = await self._finder.find(_RESOURCE, request.group.task.environment)
        if found is None:
            code = grpc.StatusCode.NOT_FOUND
            await fail(context, code, "SERVICE_NOT_FOUND", "no such environment")
        verifier: Any = verify_pb2_grpc.VerifyServiceStub(self._finder.channel(found.address))
        try:
            reply = await verifier.VerifyGroup(request.group, timeout=30.0)
        except grpc.aio.AioRpcError as error:
            status = status_of(error)
            await fail_with(context, status)
        asked = [member.rollout_id for member in request.group.members]
        problems = [problem(one.verification) for one in reply.verdicts]
        if [one.rollout_id for one in reply.verdicts] != asked or any(problems):
            code = grpc.StatusCode.INTERNAL
            await fail(context, code, "CONTRACT_VIOLATED", "not a verdict for each", rule="group")
        return agent_pb2.JudgeGroupResponse(verdicts=reply.verdicts)

    def _refusal(self, request: Any) -> status_pb2.Status | None:
        """Why there is no rollout to speak of; None: there is one."""
        missing = [
            name
            for name, there in (
                ("task", request.HasField("task")),
                ("rollout_id", request.rollout_id),
                ("task.environment", request.task.environment),
            )
            if not there
        ]
        if missing:
            details = {"field": missing[0], "method": f"{_AGENT}/RunRollout"}
            code = grpc.StatusCode.INVALID_ARGUMENT
            return make_status(code, "REQUIRED_FIELD_MISSING", "not set", **details)
        if request.task.agent not in ("", self._about.name):
            details = {"service": _AGENT, "name": request.task.agent, "known": self._about.name}
            code = grpc.StatusCode.NOT_FOUND
            return make_status(code, "SERVICE_NOT_FOUND", "another agent's", **details)
        if (request.rollout_id, request.attempt or 1) in self._running:
            details = {"rollout_id": request.rollout_id, "attempt": str(request.attempt or 1)}
            code = grpc.StatusCode.ALREADY_EXISTS
            return make_status(code, "ROLLOUT_EXISTS", "it runs already", **details)
        return None

    async def RunRollout(
        self, request: Any, context: Any
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        """Runs one attempt."""
        status = self._refusal(request)
        if status is not None:
            await fail_with(context, status)
        key = (request.rollout_id, request.attempt or 1)
        self._running.add(key)
        remaining = context.time_remaining()
        deadline = None if remaining is None else max(0.0, remaining - _MARGIN_S)
        events: asyncio.Queue[rollout_pb2.RolloutEvent] = asyncio.Queue()
        attempt = Attempt(self._finder, self._about, request, events.put_nowait)
        running = asyncio.create_task(attempt.run(deadline))
        try:
            while True:
                event = await events.get()
                yield agent_pb2.RunRolloutResponse(event=event)
                if event.WhichOneof("event") in ("completed", "failed"):
                    return
        finally:
            running.cancel()
            self._running.discard(key)
            await asyncio.gather(running, return_exceptions=True)
            attempt.close_session()
