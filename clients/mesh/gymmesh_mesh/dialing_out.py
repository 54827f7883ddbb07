"""A model of this process in a mesh that can't dial it: it dials a relay of the mesh.

    async with dial_out("relay.example:9443", "policy", TokenBackend(tokenizer, engine)) as policy:
        await policy.set_weights_version(1)
        ...

What the relay does is in ``gymmesh/relay/v1/relay.proto``.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from gymmesh.model.v1 import model_pb2
from gymmesh_model.backends.base import Backend
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import KIND, ModelService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.serve import close_bounded
from gymmesh_runtime.serving import RelayDialer, RelayedInstance

_CONNECT_S: Final = 60.0
_DRAIN_S: Final = 5.0


class DialedOut:
    """A model of this process that is offered to a mesh at a relay."""

    def __init__(self, service: ModelService, dialer: RelayDialer) -> None:
        self._service = service
        self._dialer = dialer

    @property
    def name(self) -> str:
        """The name of the model in the mesh."""
        return self._service.name

    @property
    def address(self) -> str:
        """The address at which the mesh reaches the model: HOST:PORT of the relay."""
        return self._dialer.address

    @property
    def offers(self) -> int:
        """The number of offers that the relay has accepted: 1, plus one for each reconnection and
        for each change of the weights' version.
        """
        return self._dialer.offers

    async def set_weights_version(self, version: int, adapter: str = "") -> None:
        """Set the version of the weights. New tokens carry this version. Raises MeshError."""
        request = model_pb2.SetWeightsVersionRequest(version=version, adapter=adapter)
        await self._service.SetWeightsVersion(request, CallContext(f"{KIND}/SetWeightsVersion"))


@asynccontextmanager
async def dial_out(
    relay: str,
    service: str,
    backend: Backend,
    *,
    instance_id: str = "",
    security: SecurityConfig | None = None,
    connect_s: float = _CONNECT_S,
    drain_s: float = _DRAIN_S,
) -> AsyncIterator[DialedOut]:
    """Offer a model of this process to a mesh, through the relay of that mesh at HOST:PORT.

    This process opens no port. If the connection breaks, the process connects again, until the
    context ends.

    Args:
        service: the model's name in the mesh. Models with the same name are interchangeable, so
            trainers with different policies must use different names.
        backend: the backend that answers, such as `TokenBackend` with the trainer's engine.
        instance_id: the id of the instance, unique in the mesh. Empty: generated.
        security: certificates and a token to present to the relay.
        connect_s: time limit of the first connection, in seconds.
        drain_s: seconds that running calls have to end when the context ends.

    Raises MeshError if the relay rejects the model or is unreachable, ConfigError if the
    certificates can't be used, and what the backend raises when it opens.
    """
    found = instance_id or f"model-{service}-{uuid.uuid4().hex[:12]}"
    model = ModelService(ModelConfig(), service, found, backend=backend)
    credentials = Credentials(security)
    async with AsyncExitStack() as stack:
        directory = PeerDirectory(credentials=credentials)
        stack.push_async_callback(directory.close)
        stack.push_async_callback(close_bounded, model)
        await model.open(directory)
        offered = RelayedInstance(service, found, model.servicers(), lambda: model.meta)
        dialer = RelayDialer(relay, offered, credentials)
        model.follow_meta(dialer.meta_changed)
        await dialer.start(connect_s)
        stack.push_async_callback(dialer.stop, drain_s)
        yield DialedOut(model, dialer)
