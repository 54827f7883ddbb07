"""Our own services as implementations, over each way in which they can be called.

`direct`: the runtime's peer in this process; `plain`: gRPC as anyone calls it; `mtls`: the same
over mutual TLS, by an identity with a token; `mux`: the runtime's peer for another process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_conformance.direct import PeerPath, add_rooms
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.paths import Path as WayTo
from gymmesh_conformance.scripted.serving import served_world
from gymmesh_conformance.scripted.world import World, rooms
from gymmesh_conformance.services import SERVICES
from gymmesh_conformance.suites import (
    AgentTarget,
    DiscoveryTarget,
    ModelTarget,
    ResourceTarget,
    SandboxTarget,
    Target,
    load_profile,
)
from gymmesh_discovery.service import DiscoveryService
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource import EnvironmentConfig, ResourceService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import IdentityConfig, SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving.service import Service
from gymmesh_sandbox.config import ResourceAmounts, SandboxConfig
from gymmesh_sandbox.service import SandboxService
from tests.conformance.capitals_sdk import (
    Capitals,
    CapitalsInTurns,
    CapitalsJudged,
    CapitalsTogether,
)
from tests.conformance.implementations import (
    JUDGED_CASES,
    LIMIT_CASE,
    PROFILES,
    Implementation,
)
from tests.support.certificates import Authority
from tests.support.optional import require

_MODEL: Final = "gymmesh.model.v1.ModelService"
_PATHS: Final = ("direct", "plain", "mux")
_ALL_PATHS: Final = (*_PATHS, "mtls")  # for one implementation of each kind
_Open = Callable[[str], AbstractAsyncContextManager[Target]]


@dataclass(frozen=True)
class Secured:
    """What our services and the suites show one another."""

    services: SecurityConfig
    suite: SecurityConfig


@cache
def secured() -> Secured:
    """Both ends of mutual TLS, for as long as this process runs."""
    kept = tempfile.TemporaryDirectory(prefix="gymmesh-conformance-")
    atexit.register(kept.cleanup)
    authority, token = Authority(Path(kept.name)), Path(kept.name) / "token"
    token.write_text("a-token-of-the-suite\n")
    identities = {
        "services": IdentityConfig(certificates=("services",), may=("register", "serve")),
        "suite": IdentityConfig(
            token_file=str(token), may=("collect", "control", "register", "serve")
        ),
    }
    return Secured(
        authority.tls(authority.issue("services"), identities=identities),
        authority.tls(authority.issue("stranger"), token_file=str(token)),
    )


@asynccontextmanager
async def _way(
    service: Service, path: str, directory: PeerDirectory, registry: str = ""
) -> AsyncIterator[WayTo]:
    """Opens or serves a service, and gives the path to it."""
    async with AsyncExitStack() as stack:
        if path != "direct":
            ends = secured() if path == "mtls" else None
            options = ServeOptions(
                metrics_port=None,
                discovery_address=registry,
                drain_s=0.2,
                security=None if ends is None else ends.services,
            )
            served = await stack.enter_async_context(serving(service, options))
            if path in ("plain", "mtls"):
                shown = Credentials(None if ends is None else ends.suite)
                way = AddressPath(served.instance.address, shown)
                yield await stack.enter_async_context(way)
            else:
                yield _peers(service, directory, served.instance)
            return
        stack.push_async_callback(service.close)
        await service.open(directory)
        instance = discovery_pb2.Instance(
            id=service.instance_id,
            service=service.kind,
            name=service.name,
            health=discovery_pb2.HEALTH_SERVING,
        )
        directory.add_direct(instance, service.servicers())
        yield _peers(service, directory, instance)


def _peers(
    service: Service, directory: PeerDirectory, instance: discovery_pb2.Instance
) -> PeerPath:
    names = {str(one.full_name): short for short, one in SERVICES.items()}
    return PeerPath(
        {
            names[full]: directory.peer(instance, full)
            for full in service.servicers()
            if full in names
        }
    )


class _Judge:
    """A model that says the same to all."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        usage = responses_pb2.Usage(input_tokens=5, output_tokens=3)
        response = responses_pb2.Response(status="completed", usage=usage)
        return model_pb2.CreateResponseResponse(response=response)


def _resource(
    profile: str, config: EnvironmentConfig, make: Callable[[], Any] | None = None
) -> _Open:
    @asynccontextmanager
    async def open_(path: str) -> AsyncIterator[Target]:
        variables = load_profile(PROFILES / profile)
        variables["limit_of_two"] = config.session_limit == 2
        variables["has_examples"] = make is not CapitalsTogether
        judged = make is CapitalsJudged
        service = ResourceService(
            config, "capitals" if make else "math", "ours-0", environment=make() if make else None
        )
        async with _directory() as directory:
            if judged:
                model = discovery_pb2.Instance(
                    id="judge-0",
                    service=_MODEL,
                    name="judge",
                    health=discovery_pb2.HEALTH_SERVING,
                )
                directory.add_direct(model, {_MODEL: _Judge()})
            async with _way(service, path, directory) as way:
                yield ResourceTarget(way, variables)

    return open_


@asynccontextmanager
async def _model(path: str) -> AsyncIterator[Target]:
    variables = load_profile(PROFILES / "echo.yaml")
    # A recording gives the same sample twice, and there is nothing that it cannot express.
    variables |= {"samples_differ": False, "unsupported_params": None}
    variables["checks_nested_fields"] = True
    config = ModelConfig(backend="replay", path=str(PROFILES / "replay.jsonl"))
    service = ModelService(config, "policy", "ours-0")
    async with _directory() as directory, _way(service, path, directory) as way:
        yield ModelTarget(way, variables)


def agent_of(config: AgentConfig) -> _Open:
    """Our agent, configured so."""

    @asynccontextmanager
    async def open_(path: str) -> AsyncIterator[Target]:
        world = World()
        scripted = rooms(world, ["policy"])
        variables = {"side_by_side": True, "role_in_options": True}
        service = AgentService(config, "tool_loop", "ours-0")
        async with AsyncExitStack() as stack:
            directory = await stack.enter_async_context(_directory())
            registry = ""
            if path != "direct":
                shown = Credentials(secured().suite if path == "mtls" else None)
                one = served_world(scripted, credentials=shown)
                registry = await stack.enter_async_context(one)
            else:
                add_rooms(directory, scripted)
            way = await stack.enter_async_context(_way(service, path, directory, registry))
            yield AgentTarget(way, world, variables)

    return open_


@asynccontextmanager
async def _directory() -> AsyncIterator[PeerDirectory]:
    directory = PeerDirectory()
    try:
        yield directory
    finally:
        await directory.close()


@asynccontextmanager
async def _registry(path: str) -> AsyncIterator[Target]:
    async with _directory() as directory, _way(DiscoveryService("ours-0"), path, directory) as way:
        yield DiscoveryTarget(way, {"short_leases": True})


@asynccontextmanager
async def open_sandboxes(path: str) -> AsyncIterator[Target]:
    """Our sandbox service on bubblewrap, with hostile programs where they are called for."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    with tempfile.TemporaryDirectory(prefix="gymmesh-sandboxes-") as folder:
        config = SandboxConfig(
            options={"folder": folder},
            adapts=False,  # however busy the machine is
            max_archive_bytes=32 << 20,
            max_resources=ResourceAmounts(memory_bytes=8 << 30),
        )
        # An id of its own: a service ends what another one of its id has left.
        service = SandboxService(config, "boxes", f"ours-{secrets.token_hex(4)}")
        async with (
            _directory() as directory,
            _way(service, path, directory) as way,
            _web_server() as web_server,
        ):
            profile = load_profile(PROFILES / "sandbox.yaml")
            yield SandboxTarget(way, {**profile, "web_server": web_server})


@asynccontextmanager
async def _web_server() -> AsyncIterator[str]:
    """An HTTP server of this machine that sandboxes may be let reach; HOST:PORT."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


_CONFIG: Final = EnvironmentConfig()
_MATH: Final = EnvironmentConfig(options={"judge_workers": 1})
#: What may differ by how a sandbox service is called: streams, deadlines, bytes and errors.
_OF_SANDBOX_PATHS: Final = (
    *("says_what_it_is", "makes_a_sandbox", "ended_is_not_found", "lists_sandboxes", "revokes"),
    *("runs_once_side_by_side", "exec_is_not_cut_off", "listening_is_cut_off", "much_output"),
    *("words_of_any_bytes", "large_files", "file_that_is_not_there", "packs_large_files"),
    *("in_pieces", "writes_to_standard_input", "ends_what_runs"),
)
_TWO: Final = EnvironmentConfig(session_limit=2)

OURS: Final = (
    Implementation("resource", "math", _PATHS, _resource("math.yaml", _MATH)),
    Implementation("resource", "sdk", _ALL_PATHS, _resource("capitals.yaml", _CONFIG, Capitals)),
    Implementation(
        "resource", "sdk_turns", _PATHS, _resource("capitals.yaml", _CONFIG, CapitalsInTurns)
    ),
    Implementation(
        "resource", "sdk_groups", _PATHS, _resource("groups.yaml", _CONFIG, CapitalsTogether)
    ),
    Implementation(
        "resource",
        "sdk_two",
        _PATHS,
        _resource("capitals.yaml", _TWO, Capitals),
        only=(LIMIT_CASE,),
    ),
    Implementation(
        "resource",
        "sdk_judged",
        ("direct",),
        _resource("judged.yaml", _CONFIG, CapitalsJudged),
        only=JUDGED_CASES,
    ),
    Implementation("model", "replay", _ALL_PATHS, _model),
    Implementation("agent", "tool_loop", _ALL_PATHS, agent_of(AgentConfig())),
    Implementation("discovery", "registry", _ALL_PATHS, _registry),
    Implementation("sandbox", "bubblewrap", ("plain",), open_sandboxes),
    Implementation(
        "sandbox", "bubblewrap", ("direct", "mux", "mtls"), open_sandboxes, only=_OF_SANDBOX_PATHS
    ),
)
