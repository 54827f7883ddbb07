"""Servers that go down: ours and the minimal ones do as the contract says, and mutants do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health

from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.runner import CaseResult
from gymmesh_conformance.scripted.serving import served_world
from gymmesh_conformance.scripted.world import World, rooms
from gymmesh_conformance.suites import (
    AgentTarget,
    DiscoveryTarget,
    ModelTarget,
    ResourceTarget,
    load_profile,
    run_suite,
)
from gymmesh_discovery.service import DiscoveryService
from gymmesh_resource import EnvironmentConfig, ResourceService
from gymmesh_runtime import serve
from gymmesh_runtime.serve import ServeOptions
from tests.conformance import capitals_sdk
from tests.conformance.implementations import PROFILES
from tests.conformance.minimal import draining, serving
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.collecting import CollectingAgent
from tests.conformance.minimal.draining import Draining
from tests.conformance.minimal.echo import Echo
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.status import fail
from tests.conformance.stopping import stoppable

_Serve = Callable[[str], AbstractAsyncContextManager[str]]


def _ours(make: Callable[[], Any]) -> _Serve:
    @asynccontextmanager
    async def serve_(registry: str) -> AsyncIterator[str]:
        options = ServeOptions(
            metrics_port=None, discovery_address=registry, drain_s=20.0, hands_over=True
        )
        async with serve.serving(make(), options) as served:
            yield served.instance.address

    return serve_


def _minimal(make: Callable[[str], Any]) -> _Serve:
    return lambda registry: serving.serving(make(registry))


def _environment() -> ResourceService:
    config, environment = EnvironmentConfig(), capitals_sdk.Capitals()
    return ResourceService(config, "capitals", "ours-0", environment=environment)


async def _goes_down(suite: str, serve_: _Serve, case: str = "goes_down") -> CaseResult:
    world = World()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        registry = await enter(served_world(rooms(world, ["policy"]))) if suite == "agent" else ""
        address, stop = await enter(stoppable(serve_(registry)))
        path = await enter(AddressPath(address))
        target: Any
        if suite == "agent":
            target = AgentTarget(path, world, load_profile(PROFILES / "minimal_agent.yaml"))
        elif suite == "resource":
            target = ResourceTarget(path, load_profile(PROFILES / "capitals.yaml"))
        elif suite == "model":
            target = ModelTarget(path, load_profile(PROFILES / "echo.yaml"))
        else:
            target = DiscoveryTarget(path)
        (result,) = await run_suite(target, only=[case], stop=stop)
    return result


@pytest.mark.parametrize(
    ("suite", "serve_"),
    [
        ("resource", _minimal(lambda _: Capitals())),
        ("model", _minimal(lambda _: Echo())),
        ("agent", _minimal(MinimalAgent)),
        ("agent", _minimal(CollectingAgent)),
        ("discovery", _minimal(lambda _: Registry())),
        ("resource", _ours(_environment)),
        ("agent", _ours(lambda: AgentService(AgentConfig(), "tool_loop", "ours-0"))),
        ("discovery", _ours(lambda: DiscoveryService("ours-0"))),
    ],
)
async def test_goes_down(suite: str, serve_: _Serve) -> None:
    result = await _goes_down(suite, serve_)
    assert result.outcome == "passed", result.problems


HELD = "keeps_open_sessions_while_it_goes_down"


@pytest.mark.parametrize("serve_", [_minimal(lambda _: Capitals()), _ours(_environment)])
async def test_a_session_that_is_open_is_served_to_its_end(serve_: _Serve) -> None:
    result = await _goes_down("resource", serve_, HELD)
    assert result.outcome == "passed", result.problems


async def test_one_case_stops_a_server() -> None:
    async with (
        stoppable(_minimal(lambda _: Capitals())("")) as (address, stop),
        AddressPath(address) as path,
    ):
        target = ResourceTarget(path, load_profile(PROFILES / "capitals.yaml"))
        first, second = await run_suite(target, only=["goes_down", HELD], stop=stop)
    assert (first.outcome, second.outcome) == ("passed", "skipped"), first.problems
    assert second.lacks == f"another server: goes_down stopped this one; pass --case {HELD}"


class _Graceful(Draining):
    """Only lets running calls end, as the graceful stop of a gRPC library does."""

    def __init__(self, held: Any) -> None:
        super().__init__()


async def test_a_graceful_stop_alone_loses_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymmesh_conformance.runner._SETTLE_S", 3.0)
    monkeypatch.setattr(serving, "Draining", _Graceful)
    result = await _goes_down("resource", _minimal(lambda _: Capitals()), HELD)
    assert result.outcome == "failed"
    assert any("held" in problem for problem in result.problems)


class _StillServing(health.aio.HealthServicer):
    """Says that it is well to the last."""

    async def enter_graceful_shutdown(self) -> None:
        """Does nothing."""


class _TakesAll(Draining):
    """Takes new calls, as if it had time."""

    async def drain(self, grace_s: float) -> None:
        await asyncio.sleep(8)


class _AtOnce(Draining):
    """Ends what runs at once."""

    async def drain(self, grace_s: float) -> None:
        self._time_is_up.set()
        await super().drain(grace_s)


async def _inside(context: Any) -> None:
    await fail(context, grpc.StatusCode.INTERNAL, "INTERNAL_FAULT", "something is gone")


@pytest.mark.parametrize(
    ("owner", "name", "defect"),
    [
        (health.aio, "HealthServicer", _StillServing),
        (serving, "Draining", _TakesAll),
        (draining, "_fail", _inside),
    ],
)
async def test_a_server_that_goes_down_wrongly_fails(
    owner: Any, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_conformance.steps.probes._TIMEOUT_S", 3.0)
    monkeypatch.setattr("gymmesh_conformance.runner._SETTLE_S", 3.0)
    if owner is draining:
        monkeypatch.setattr(serving, "Draining", _AtOnce)
    monkeypatch.setattr(owner, name, defect)
    result = await _goes_down("resource", _minimal(lambda _: Capitals()))
    assert result.outcome == "failed"
