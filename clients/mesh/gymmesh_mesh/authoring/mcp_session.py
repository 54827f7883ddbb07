"""One session of an environment for an agent outside of the mesh, which works over MCP.

The environment is part of a mesh that runs elsewhere and is found through its registry. Or it is
opened in this process, for the session alone. The session is opened in the same way as an agent of
the mesh opens a session. The session's id is enough to get a token for it (see
`gymmesh_resource.mcp_server`).
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_mesh.authoring.placing import with_environment
from gymmesh_mesh.compose import make_service, open_here, sandboxes_for, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_resource.config import McpConfig
from gymmesh_resource.service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from gymmesh_responses import dumps, items_from_json, loads, new_message
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.serve import DISCOVERY

_CALL_S: Final = 60.0
_ASK_S: Final = 10.0
# The environment has its own bound, which may be long; this one is for a service that is gone.
_VERIFY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OfferedEnvironment:
    """An environment whose tools are offered over MCP at `url`."""

    name: str
    url: str
    resource: Any
    verifier: Any

    async def example(self, task_id: str | None = None) -> rollout_pb2.Task | None:
        """An example task of the environment: the task with this id, or the first. Raises
        MeshError.
        """
        token = ""
        while True:
            request = resource_pb2.ListTasksRequest(page_token=token)
            reply: resource_pb2.ListTasksResponse = await self.resource.ListTasks(
                request, timeout=_ASK_S
            )
            for task in reply.tasks:
                if task_id is None or task.task_id == task_id:
                    found: rollout_pb2.Task = task
                    return found
            token = reply.next_page_token
            if not token:
                return None

    @asynccontextmanager
    async def session(
        self, task: rollout_pb2.Task, *, seed: int | None = None
    ) -> AsyncIterator[McpSession]:
        """Open a session for a task, and close it after the block. Raises MeshError."""
        request = resource_pb2.CreateSessionRequest(
            task=task, seed=seed, request_id=f"mcp-{secrets.token_hex(12)}"
        )
        opened: resource_pb2.CreateSessionResponse = await self.resource.CreateSession(
            request, timeout=_CALL_S
        )
        try:
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_ASK_S),
                headers={"Authorization": f"Bearer {opened.session_id}"},
            ) as http:
                session = McpSession(self, task, opened, http)
                session.token = str((await session._ask("POST", "/tokens") or {}).get("token", ""))
                if not session.token:
                    raise _unreachable(self.url, "the server returned no token for the session")
                yield session
        finally:
            close = resource_pb2.CloseSessionRequest(session_id=opened.session_id)
            with contextlib.suppress(MeshError):
                await self.resource.CloseSession(close, timeout=_ASK_S)


class McpSession:
    """An open session. `url` and `token` are for the agent, `tools` lists the tools that it can
    call.
    """

    def __init__(
        self,
        environment: OfferedEnvironment,
        task: rollout_pb2.Task,
        opened: resource_pb2.CreateSessionResponse,
        http: aiohttp.ClientSession,
    ) -> None:
        self.url = environment.url
        self.token = ""
        self.tools = [tool.function.name for tool in opened.tools]
        self.items: Sequence[responses_pb2.Item] = list(opened.items)
        self._environment = environment
        self._task = task
        self._id = opened.session_id
        self._http = http

    async def ended(self) -> bool:
        """Whether the episode is over, or the session closed. Raises MeshError."""
        about = await self._ask("GET", "")
        return about is None or bool(about.get("done"))

    async def verify(self, answer: str = "") -> rollout_pb2.Verification:
        """The verdict on the calls that were made over MCP, and on the agent's last message, if
        any. Raises MeshError, for example if the session was closed before.
        """
        about = await self._ask("GET", "/items") or {}
        transcript = list(items_from_json(dumps(about.get("items", []))))
        if answer:
            transcript.append(new_message("assistant", answer))
        request = verify_pb2.VerifyRequest(
            session_id=self._id,
            task=self._task,
            transcript=transcript,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        reply: verify_pb2.VerifyResponse = await self._environment.verifier.Verify(
            request, timeout=_VERIFY_S
        )
        return reply.verification

    async def _ask(self, method: str, path: str) -> Mapping[str, Any] | None:
        """The answer to the session's owner; None when the session is closed."""
        url = f"{self.url.removesuffix('/mcp')}/session{path}"
        try:
            async with self._http.request(method, url) as reply:
                body = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.url, str(error) or type(error).__name__) from None
        if reply.status == 401:
            return None
        document = loads(body) if reply.status == 200 else None
        if not isinstance(document, dict):
            raise _unreachable(self.url, f"the server answered with HTTP status {reply.status}")
        return document


@asynccontextmanager
async def environment_alone(name: str, config: MeshConfig) -> AsyncIterator[OfferedEnvironment]:
    """Open an environment in this process: one of the configuration, an installed one, or one of a
    file. Only the models and sandbox services that it uses are opened with it. Raises ConfigError.
    """
    config = with_environment(config, name)
    name = config.defaults.environment
    chosen = config.environments[name]
    chosen = msgspec.structs.replace(chosen, mcp=chosen.mcp or McpConfig())
    service = ResourceService(chosen, name, f"environment-{name}-mcp")
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        for spec in specs_of(config, suffix="mcp"):
            if spec.kind == "model" and spec.name in service.model_names:
                await open_here(make_service(spec), directory, stack)
        for sandboxes in sandboxes_for([service], config):
            await open_here(sandboxes, directory, stack)
        yield _offered(directory, await open_here(service, directory, stack))


@asynccontextmanager
async def environment_at(
    registry: str, name: str, security: SecurityConfig | None = None
) -> AsyncIterator[OfferedEnvironment]:
    """An environment of a running mesh, found at the registry of that mesh (`host:port`).

    `security`: certificates, and a token with the permission `serve`. Raises ConfigError if the
    registry does not have the environment, or if the environment does not offer its tools. Raises
    MeshError.
    """
    directory = PeerDirectory(credentials=Credentials(security))
    try:
        peer = directory.peer(
            discovery_pb2.Instance(id=registry, service=DISCOVERY, address=registry)
        )
        request = discovery_pb2.ListInstancesRequest(service=RESOURCE_SERVICE)
        reply: discovery_pb2.ListInstancesResponse = await peer.ListInstances(
            request, timeout=_ASK_S
        )
        named = [one for one in reply.instances if one.name == name]
        offering = [one for one in named if one.meta.get("mcp")]
        if not named:
            there = ", ".join(sorted({one.name for one in reply.instances})) or "none"
            raise ConfigError(
                f"the registry {registry} has no environment {name!r}. Environments at "
                f"this registry: {there}"
            )
        if not offering:
            raise ConfigError(
                f"environment {name!r} at the registry {registry} does not offer its tools over "
                f"MCP. Start the environment with environments.{name}.mcp={{}}"
            )
        # Any of them would do: each holds its own sessions.
        yield _offered(directory, secrets.choice(offering))
    finally:
        await directory.close()


def _offered(directory: PeerDirectory, instance: discovery_pb2.Instance) -> OfferedEnvironment:
    return OfferedEnvironment(
        instance.name,
        instance.meta["mcp"],
        directory.peer(instance),
        directory.peer(instance, VERIFY_SERVICE),
    )


def _unreachable(url: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, f"the tool server at {url} failed: {problem}"
    )
