"""Serves an environment on the direct path, and makes the requests that tests send."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from gymmesh_runtime.peers import PeerDirectory

TIMEOUT = 300.0
MODEL = "gymmesh.model.v1.ModelService"
_ids = itertools.count(1)


def task(task_id: str = "t", **payload: Any) -> rollout_pb2.Task:
    return rollout_pb2.Task(
        task_id=task_id, environment="e", payload_json=json.dumps(payload).encode()
    )


def new_id() -> str:
    return f"request-{next(_ids)}"


class Served:
    """The peers of one environment, with shorthands for its calls."""

    def __init__(self, service: ResourceService, directory: PeerDirectory) -> None:
        instance = discovery_pb2.Instance(
            id=service.instance_id, service=RESOURCE_SERVICE, name=service.name
        )
        directory.add_direct(instance, service.servicers())
        self.service = service
        self.resource = directory.peer(instance)
        self.verifier = directory.peer(instance, VERIFY_SERVICE)

    async def create(
        self,
        of: rollout_pb2.Task | None = None,
        *,
        request_id: str | None = None,
        seed: int | None = None,
    ) -> resource_pb2.CreateSessionResponse:
        request = resource_pb2.CreateSessionRequest(
            task=of or task(), request_id=request_id or new_id(), seed=seed
        )
        return await self.resource.CreateSession(request, timeout=TIMEOUT)  # type: ignore[no-any-return]

    async def call(
        self, session_id: str, name: str, arguments: Any = None, *, request_id: str | None = None
    ) -> resource_pb2.CallToolResponse:
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        request = resource_pb2.CallToolRequest(
            session_id=session_id, name=name, arguments=raw, request_id=request_id or new_id()
        )
        return await self.resource.CallTool(request, timeout=TIMEOUT)  # type: ignore[no-any-return]

    async def turn(
        self,
        session_id: str,
        items: list[responses_pb2.Item] | None = None,
        request_id: str | None = None,
    ) -> resource_pb2.NextTurnResponse:
        request = resource_pb2.NextTurnRequest(
            session_id=session_id, new_items=items or [], request_id=request_id or new_id()
        )
        return await self.resource.NextTurn(request, timeout=TIMEOUT)  # type: ignore[no-any-return]

    async def verify(
        self,
        session_id: str = "",
        of: rollout_pb2.Task | None = None,
        transcript: list[responses_pb2.Item] | None = None,
        *,
        timeout: float = TIMEOUT,
    ) -> rollout_pb2.Verification:
        request = verify_pb2.VerifyRequest(
            session_id=session_id,
            task=of or task(),
            transcript=transcript or [],
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        response = await self.verifier.Verify(request, timeout=timeout)
        return response.verification  # type: ignore[no-any-return]

    async def close(self, session_id: str) -> None:
        request = resource_pb2.CloseSessionRequest(session_id=session_id)
        await self.resource.CloseSession(request, timeout=TIMEOUT)


@asynccontextmanager
async def served(
    environment: Environment[Any] | None = None,
    *,
    clock: Callable[[], float] | None = None,
    model_services: Mapping[str, object] | None = None,
    **config: Any,
) -> AsyncIterator[Served]:
    clocked = {"clock": clock} if clock else {}
    service = ResourceService(
        EnvironmentConfig(**config), "e", "e-0", environment=environment, **clocked
    )
    directory = PeerDirectory()
    for name, servicer in (model_services or {}).items():
        model = discovery_pb2.Instance(
            id=f"model-{name}", service=MODEL, name=name, health=discovery_pb2.HEALTH_SERVING
        )
        directory.add_direct(model, {MODEL: servicer})
    await service.open(directory)
    try:
        yield Served(service, directory)
    finally:
        await service.close()
        await directory.close()
