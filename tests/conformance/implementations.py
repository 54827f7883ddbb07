"""What our own run of the suites covers: here the minimal servers, in `ours` our services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_conformance.cases import load_cases
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.scripted.serving import served_world
from gymmesh_conformance.scripted.world import World, rooms
from gymmesh_conformance.suites import (
    AgentTarget,
    DiscoveryTarget,
    ModelTarget,
    ResourceTarget,
    Target,
    load_profile,
)
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.collecting import CollectingAgent
from tests.conformance.minimal.echo import Echo
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.serving import serving

PROFILES: Final = Path(__file__).parent / "profiles"
JUDGED_CASES: Final = (
    "what_the_verifier_asked",
    "what_was_consumed_before_an_error",
    "what_was_consumed_before_a_turn_failed",
)
LIMIT_CASE: Final = "keeps_its_limit_of_sessions"  # wants a server to itself


@dataclass(frozen=True)
class Implementation:
    """A server that can be set up for a suite, over each of its paths.

    `only` names the cases that it is there for; none: all.
    """

    suite: str
    name: str
    paths: tuple[str, ...]
    open: Callable[[str], AbstractAsyncContextManager[Target]]
    only: tuple[str, ...] = ()


def _minimal_resource(**given: Any) -> Callable[[str], AbstractAsyncContextManager[Target]]:
    @asynccontextmanager
    async def open_(path: str) -> AsyncIterator[Target]:
        options = dict(given)
        profile = load_profile(PROFILES / "capitals.yaml")
        profile["limit_of_two"] = options.get("session_limit") == 2
        async with AsyncExitStack() as stack:
            if options.pop("judged", False):
                options["judge"] = await stack.enter_async_context(serving(Echo()))
                profile = load_profile(PROFILES / "judged.yaml")
            address = await stack.enter_async_context(serving(Capitals(**options)))
            way = await stack.enter_async_context(AddressPath(address))
            yield ResourceTarget(way, profile)

    return open_


@asynccontextmanager
async def _minimal_model(path: str) -> AsyncIterator[Target]:
    async with serving(Echo()) as address, AddressPath(address) as way:
        yield ModelTarget(way, load_profile(PROFILES / "echo.yaml"))


@asynccontextmanager
async def _minimal_registry(path: str) -> AsyncIterator[Target]:
    async with serving(Registry()) as address, AddressPath(address) as way:
        yield DiscoveryTarget(way, {"short_leases": True})


def _minimal_agent(
    make: Callable[[str], MinimalAgent],
) -> Callable[[str], AbstractAsyncContextManager[Target]]:
    @asynccontextmanager
    async def open_(path: str) -> AsyncIterator[Target]:
        world = World()
        async with AsyncExitStack() as stack:
            registry = await stack.enter_async_context(served_world(rooms(world, ["policy"])))
            address = await stack.enter_async_context(serving(make(registry)))
            way = await stack.enter_async_context(AddressPath(address))
            yield AgentTarget(way, world, load_profile(PROFILES / "minimal_agent.yaml"))

    return open_


COLLECT_CASES: Final = tuple(case.name for case in load_cases("agent") if "collect" in case.needs)


MINIMAL: Final = (
    Implementation("resource", "capitals", ("plain",), _minimal_resource()),
    Implementation("resource", "capitals_turns", ("plain",), _minimal_resource(multi_turn=True)),
    Implementation(
        "resource", "capitals_groups", ("plain",), _minimal_resource(judges_groups=True)
    ),
    Implementation(
        "resource",
        "capitals_two",
        ("plain",),
        _minimal_resource(session_limit=2),
        only=(LIMIT_CASE,),
    ),
    Implementation(
        "resource",
        "capitals_judged",
        ("plain",),
        _minimal_resource(multi_turn=True, judged=True),
        only=JUDGED_CASES,
    ),
    Implementation("model", "echo", ("plain",), _minimal_model),
    Implementation("discovery", "minimal_registry", ("plain",), _minimal_registry),
    Implementation("agent", "minimal", ("plain",), _minimal_agent(MinimalAgent)),
    Implementation(
        "agent",
        "minimal_collect",
        ("plain",),
        _minimal_agent(CollectingAgent),
        only=COLLECT_CASES,
    ),
)
