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
from gymmesh_conformance.gateway import (
    GatewayAdapter,
    apis_of,
    run_gateway_suite,
    select_gateway_cases,
)
from gymmesh_conformance.mux import MuxTarget, run_mux_suite, select_mux_cases
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.reports import as_json, as_junit, lines_of, summary
from gymmesh_conformance.runner import CaseResult, Stop
from gymmesh_conformance.scripted import World, rooms, served_world
from gymmesh_conformance.suites import (
    AgentTarget,
    DiscoveryTarget,
    ModelTarget,
    ResourceTarget,
    SandboxTarget,
    Target,
    TargetError,
    check_profile,
    load_profile,
    run_suite,
    select,
)
from gymmesh_runtime.config import ConfigError, named_module
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import Credentials, Refusals, SecurityConfig

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
    "sandbox": SandboxTarget,
}
#: The targets that call what the suite serves.
_CALLED: Final = ("agent", "collector")


@dataclass(frozen=True)
class Options:
    """What is tested and how.

    `target`: the server's HOST:PORT; for a collector where its agent is served, and `command` its
    command line (empty: it is started by hand). `registry`: where an agent finds its peers.
    `slow_s`: seconds that a slow call takes (None: what the suite has). `stop`: a command that
    tells the server to go down (empty: there is none). `wait_s`: how long to wait
    for the server, or for one run of a collector (None: 30, and 300 for one started by hand).
    `hostile`: run the hostile cases of a sandbox service, too.
    `adapter`: of a capture gateway: `module:name` or `folder/file.py:name` of the class that
    opens rollouts there; it is called with `target`.
    `security`: the certificates and the token to show, and to serve with what an agent or a
    collector calls (None: all is plain).
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
    hostile: bool = False
    adapter: str = ""
    json: bool = False
    junit: Path | None = None
    security: SecurityConfig | None = None


def run(options: Options, say: Callable[[str], None]) -> int:
    """Runs a suite and reports through `say`; returns the exit code."""
    try:
        profile = _checked(options)
        credentials = _credentials(options)
    except (OSError, LookupError, TargetError, ConfigError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return USAGE
    try:
        results = asyncio.run(_results(options, profile, credentials, say))
        if options.junit is not None:
            options.junit.write_bytes(as_junit(results))
    except (OSError, TargetError, MeshError) as error:
        print(error, file=sys.stderr)
        return USAGE if "profile" in str(error) else FAILED
    say(as_json(results) if options.json else summary(results))
    return FAILED if any(result.outcome == "failed" for result in results) else CONFORMS


def _checked(options: Options) -> dict[str, Any]:
    """The profile. Raises for one that cannot be read, and for a case that there is not."""
    profile = load_profile(options.profile) if options.profile else {}
    if options.slow_s is not None:
        profile["slow_s"] = options.slow_s
    if options.hostile:
        profile["hostile"] = True
    if options.service == "collector":
        select_collector_cases(options.cases)
    elif options.service == "mux":
        select_mux_cases(options.cases)
        check_profile("mux", profile)
    elif options.service == "gateway":
        select_gateway_cases(options.cases)
        _adapter(options)
    else:
        select(options.service, options.cases)
        check_profile(options.service, profile)
    return profile


def _adapter(options: Options) -> GatewayAdapter:
    """The adapter of a capture gateway. Raises LookupError where there is none."""
    place, _, name = options.adapter.rpartition(":")
    try:
        adapter: GatewayAdapter = getattr(named_module(place), name)(options.target)
    except (ImportError, AttributeError, OSError, SyntaxError, TypeError, ValueError) as error:
        raise LookupError(
            f"--adapter {options.adapter or 'is missing'}: give MODULE:CLASS or "
            "FOLDER/FILE.py:CLASS, seen from the working directory, a class that is called with "
            f"the target ({error})"
        ) from error
    apis_of(adapter)
    return adapter


def _credentials(options: Options) -> Credentials:
    """What to show, and to serve with. Raises ConfigError."""
    credentials = Credentials(options.security)
    if options.service in _CALLED:
        credentials.server()
    return credentials


async def _results(
    options: Options,
    profile: dict[str, Any],
    credentials: Credentials,
    say: Callable[[str], None],
) -> list[CaseResult]:
    def report(result: CaseResult) -> None:
        for line in () if options.json else lines_of(result):
            say(line)

    if options.service == "collector":
        slow_s = Collector.slow_s if options.slow_s is None else options.slow_s
        wait_s = options.wait_s or (_WAIT_S if options.command else _BY_HAND_S)
        collector = Collector(
            options.command,
            options.target,
            wait_s + 2 * slow_s,
            slow_s,
            announce=_aside,
            credentials=credentials,
        )
        return await run_collector_suite(collector, only=options.cases, report=report)
    if options.service == "gateway":
        return await run_gateway_suite(_adapter(options), only=options.cases, report=report)
    stop = _stopper(options.stop) if options.stop else None
    if options.service == "mux":
        async with (
            _connected(options, credentials) as path,
            MuxTarget(path, profile) as mux,
        ):
            return await run_mux_suite(mux, only=options.cases, stop=stop, report=report)
    async with _target(options, profile, credentials) as target:
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
async def _target(
    options: Options, profile: dict[str, Any], credentials: Credentials
) -> AsyncIterator[Target]:
    make = _ALONE.get(options.service)
    if make is not None:
        async with AddressPath(options.target, credentials) as path:
            made = make(path, profile)  # says what is wrong with a profile before it waits
            await _ready(path, options)
            yield made
        return
    world = World()
    scripted = rooms(world, [profile.get("role", "policy")])
    async with served_world(scripted, options.registry, credentials) as registry:
        _aside(f"discovery for the agent is at {registry}")
        async with _connected(options, credentials) as path:
            yield AgentTarget(path, world, profile)


@asynccontextmanager
async def _connected(options: Options, credentials: Credentials) -> AsyncIterator[AddressPath]:
    async with AddressPath(options.target, credentials) as path:
        await _ready(path, options)
        yield path


def _aside(text: str) -> None:
    """Says what is no result."""
    print(text, file=sys.stderr, flush=True)


async def _ready(path: AddressPath, options: Options) -> None:
    timeout = options.wait_s or _WAIT_S
    try:
        await path.ready(timeout)
    except TimeoutError:
        tls = None if options.security is None else options.security.tls
        refused = await Refusals(tls).find(path.address)
        if refused is not None:
            raise refused from None
        raise TargetError(f"nothing answers at {path.address} within {timeout:.0f} s") from None
