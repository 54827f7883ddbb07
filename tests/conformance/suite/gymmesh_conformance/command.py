"""The command behind `gym-cli conformance` and `python -m gymmesh_conformance`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gymmesh_conformance.collectors import Collector, run_collector_suite, select_collector_cases
from gymmesh_conformance.mux.runner import run_mux_suite, select_mux_cases
from gymmesh_conformance.mux.target import MuxTarget
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.reports import as_json, as_junit, lines_of, summary
from gymmesh_conformance.runner import CaseResult, Stop
from gymmesh_conformance.scripted.serving import served_world
from gymmesh_conformance.scripted.world import World, rooms
from gymmesh_conformance.suites import (
    AgentTarget,
    DiscoveryTarget,
    ModelTarget,
    ResourceTarget,
    Target,
    TargetError,
    load_profile,
    run_suite,
    select,
)

CONFORMS: Final = 0
FAILED: Final = 1
USAGE: Final = 2
_WAIT_S: Final = 30.0
_BY_HAND_S: Final = 300.0
_STOP_S: Final = 30.0  # for the command itself
#: The targets for which the suite need not serve anything.
_ALONE: Final[Mapping[str, Callable[[AddressPath, dict[str, Any]], Target]]] = {
    "resource": ResourceTarget,
    "model": ModelTarget,
    "discovery": DiscoveryTarget,
}


@dataclass(frozen=True)
class Options:
    """What is tested and how.

    `target`: the server's HOST:PORT; for a collector where its agent is served, and `command` its
    command line (empty: it is started by hand). `registry`: where an agent finds its peers.
    `slow_s`: seconds that a slow call takes (None: what the suite has). `stop`: a command that
    tells the server to go down (empty: there is none). `wait_s`: how long to wait
    for the server, or for one run of a collector (None: 30, and 300 for one started by hand).
    """

    service: str
    target: str
    profile: Path | None = None
    registry: str = "127.0.0.1:0"
    command: str = ""
    cases: tuple[str, ...] = ()
    slow_s: float | None = None
    stop: str = ""
    wait_s: float | None = None
    json: bool = False
    junit: Path | None = None


def run(options: Options, say: Callable[[str], None]) -> int:
    """Runs a suite and reports through `say`; returns the exit code."""
    try:
        profile = _checked(options)
    except (OSError, LookupError, TargetError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return USAGE
    try:
        results = asyncio.run(_results(options, profile, say))
        if options.junit is not None:
            options.junit.write_bytes(as_junit(results))
    except (OSError, TargetError) as error:
        print(error, file=sys.stderr)
        return USAGE if "profile" in str(error) else FAILED
    say(as_json(results) if options.json else summary(results))
    return FAILED if any(result.outcome == "failed" for result in results) else CONFORMS


def _checked(options: Options) -> dict[str, Any]:
    """The profile. Raises for one that cannot be read, and for a case that there is not."""
    profile = load_profile(options.profile) if options.profile else {}
    if options.slow_s is not None:
        profile["slow_s"] = options.slow_s
    if options.service == "collector":
        select_collector_cases(options.cases)
    elif options.service == "mux":
        select_mux_cases(options.cases)
    else:
        select(options.service, options.cases)
    return profile


async def _results(
    options: Options, profile: dict[str, Any], say: Callable[[str], None]
) -> list[CaseResult]:
    def report(result: CaseResult) -> None:
        for line in () if options.json else lines_of(result):
            say(line)

    if options.service == "collector":
        slow_s = Collector.slow_s if options.slow_s is None else options.slow_s
        wait_s = options.wait_s or (_WAIT_S if options.command else _BY_HAND_S)
        collector = Collector(
            options.command, options.target, wait_s + 2 * slow_s, slow_s, announce=_aside
        )
        return await run_collector_suite(collector, only=options.cases, report=report)
    stop = _stopper(options.stop) if options.stop else None
    if options.service == "mux":
        async with AddressPath(options.target) as path:
            await _ready(path, options.wait_s or _WAIT_S)
            async with MuxTarget(path, profile) as mux:
                return await run_mux_suite(mux, only=options.cases, stop=stop, report=report)
    async with _target(options, profile) as target:
        return await run_suite(target, only=options.cases, stop=stop, report=report)


def _stopper(command: str) -> Stop:
    async def stop() -> None:
        process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.DEVNULL)
        async with asyncio.timeout(_STOP_S):
            code = await process.wait()
        if code:
            raise TargetError(f"`{command}`, which tells the server to go down, ended with {code}")

    return stop


@asynccontextmanager
async def _target(options: Options, profile: dict[str, Any]) -> AsyncIterator[Target]:
    async with AddressPath(options.target) as path:
        make = _ALONE.get(options.service)
        if make is not None:
            made = make(path, profile)
            await _ready(path, options.wait_s or _WAIT_S)
            yield made
            return
        world = World()
        roles = [profile.get("role", "policy")]
        async with served_world(rooms(world, roles), options.registry) as registry:
            _aside(f"discovery for the agent is at {registry}")
            await _ready(path, options.wait_s or _WAIT_S)
            yield AgentTarget(path, world, profile)


def _aside(text: str) -> None:
    """Says what is no result."""
    print(text, file=sys.stderr, flush=True)


async def _ready(path: AddressPath, timeout: float) -> None:
    try:
        await path.ready(timeout)
    except TimeoutError:
        raise TargetError(f"nothing answers at {path.address} within {timeout:.0f} s") from None
