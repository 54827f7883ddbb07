"""An identity that registers one kind of service cannot stand in for another kind."""

from __future__ import annotations

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.config import IdentityConfig
from gymmesh_runtime.security.credentials import Credentials

SECURITY = SecurityConfig(
    identities={
        "environments": IdentityConfig(
            token_sha256="0" * 64, may=("register",), registers=("resource",)
        ),
        "all": IdentityConfig(token_sha256="1" * 64, may=("register",)),
    }
)


@pytest.mark.parametrize(
    ("identity", "service", "allowed"),
    [
        ("environments", "gymmesh.resource.v1.ResourceService", True),
        ("environments", "gymmesh.model.v1.ModelService", False),
        ("environments", "gymmesh.agent.v1.AgentService", False),
        ("environments", "gymmesh.resource.v1.ModelService", False),
        ("environments", "gymmesh.resource.v2.ResourceService", False),
        ("environments", "other.Service", False),
        ("all", "gymmesh.model.v1.ModelService", True),
        ("", "gymmesh.model.v1.ModelService", True),
    ],
)
async def test_who_registers_what(identity: str, service: str, allowed: bool) -> None:
    registry = DiscoveryService("registry-0")
    directory = PeerDirectory(credentials=Credentials(SECURITY))
    await registry.open(directory)
    try:
        instance = pb.Instance(id="a", service=service, name="n", address="127.0.0.1:9")
        request = pb.RegisterRequest(instance=instance)
        context = CallContext("r", identity=identity)
        if allowed:
            assert (await registry.Register(request, context)).lease_id
            return
        with pytest.raises(MeshError) as refused:
            await registry.Register(request, context)
        assert refused.value.reason == errors_pb2.ERROR_REASON_NOT_PERMITTED
        assert "may not register" in refused.value.message
    finally:
        await registry.close()
        await directory.close()


def test_registers_without_the_permission_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the permission 'register'"):
        IdentityConfig(token_sha256="0" * 64, may=("serve",), registers=("resource",))
