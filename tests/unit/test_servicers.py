"""Every RPC of every servicer has one shape: a coroutine function, or an async generator."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from gymmesh_agent.service import AgentService
from gymmesh_client.control.servicer import RunServicer
from gymmesh_discovery.service import DiscoveryService
from gymmesh_model.service import ModelService
from gymmesh_relay.service import RelayService
from gymmesh_resource.serving import ResourceServicer, VerifyServicer
from gymmesh_runtime.contract import methods_of
from gymmesh_sandbox.servicer import SandboxServicer

_SERVICERS = {
    "gymmesh.agent.v1.AgentService": AgentService,
    "gymmesh.discovery.v1.DiscoveryService": DiscoveryService,
    "gymmesh.model.v1.ModelService": ModelService,
    "gymmesh.relay.v1.RelayService": RelayService,
    "gymmesh.resource.v1.ResourceService": ResourceServicer,
    "gymmesh.run.v1.RunService": RunServicer,
    "gymmesh.sandbox.v1.SandboxService": SandboxServicer,
    "gymmesh.verify.v1.VerifyService": VerifyServicer,
}


@pytest.mark.parametrize(("service", "servicer"), _SERVICERS.items())
def test_each_rpc_is_a_coroutine_or_an_async_generator(service: str, servicer: type[Any]) -> None:
    methods = methods_of(service)
    assert methods
    for name, spec in methods.items():
        method = getattr(servicer, name)
        is_right = (
            inspect.isasyncgenfunction(method)
            if spec.server_streaming
            else inspect.iscoroutinefunction(method)
        )
        assert is_right, f"{servicer.__name__}.{name}"
