"""The sandbox that an environment or agent requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, sandbox_pb2
from gymmesh_runtime.errors import MeshError

Reach: TypeAlias = (
    "Literal['none', 'open', 'agent'] | Sequence[str | sandbox_pb2.AllowedHost]"
    " | sandbox_pb2.Network"
)
"""What a sandbox can reach: nothing, everything that its host can, the model gateway of the
rollout's agent at `AGENT_PORT`, or the hosts in a list, as `name` or `name:port` (`*.name` matches
all subdomains; an AllowedHost of the contract may have private addresses). It may also be the
contract's message."""

#: The port of the gateway at 127.0.0.1, in a sandbox with the network `agent`.
AGENT_PORT: Final = 8377

#: The role of the sandbox that `Environment.sandbox` declares.
WORKSPACE: Final = "workspace"
_MIB: Final = 1 << 20
_IMAGE_ERRORS: Final = (
    errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
    errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED,
)
_MOST: Final = (1 << 32) // 1000 - 1  # what the contract's numbers hold, also as thousandths


@dataclass(frozen=True, slots=True)
class RolloutAgent:
    """An agent of the mesh, whose model gateway programs in a sandbox may call."""

    name: str
    instance_id: str

    def network(self) -> sandbox_pb2.Network:
        """A network that reaches only the gateway, at `AGENT_PORT`."""
        return sandbox_pb2.Network(
            relay=sandbox_pb2.Relay(
                service="gymmesh.agent.v1.AgentService",
                name=self.name,
                instance_id=self.instance_id,
                address_key="gateway",
                port=AGENT_PORT,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """A sandbox that an author requests. Zero or empty: the default of the sandbox service.

    image: the name of the image or snapshot whose files the sandbox starts with.
    image_digest: the digest that the image must have.
    build: an image to build instead.
    cpus: processors.
    memory_mb, disk_mb: MiB.
    pids: the maximum number of concurrent processes and threads.
    life_s: the sandbox's lifetime in seconds. It ends after that, whatever happens.
    network: see `Reach`.
    env, user, workdir: variables, user and working directory of all processes.
    files: written before any process starts, by path.
    labels: for people and the backend's own tools.
    ttl_s: the sandbox ends this many seconds after the last renewal of its lease; the client renews
    it.
    start_timeout_s: the maximum number of seconds until the sandbox is ready, including an image's
    fetch or build.
    image_help: sentences that say where the image comes from and how to provide it. The error has
    them if the service has no image.
    service: the environment's own name for the sandbox service, which the configuration maps to a
    service of the mesh (`sandboxes: {sandbox: boxes}`).
    lent: whether the agent may work in the sandbox. A lent sandbox opens with the session, and the
    agent gets a grant for it. Other sandboxes open on first use.
    """

    image: str = ""
    image_digest: str = ""
    build: sandbox_pb2.ImageBuild | None = None
    cpus: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    pids: int = 0
    life_s: int = 0
    network: Reach = "none"
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl_s: int = 90
    start_timeout_s: int = 0
    image_help: str = ""
    service: str = "sandbox"
    lent: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid amount; the message names the field."""
        for name in ("cpus", "memory_mb", "disk_mb", "pids", "life_s", "ttl_s", "start_timeout_s"):
            amount = getattr(self, name)
            if not 0 <= amount <= _MOST:
                raise ValueError(
                    f"SandboxSpec.{name} is {amount}, but must be from 0 to {_MOST}; 0 means the "
                    "service's default"
                )

    def request(
        self, request_id: str, agent: RolloutAgent | None = None
    ) -> sandbox_pb2.CreateSandboxRequest:
        """The request for this sandbox. Raises ValueError for an invalid network.

        agent: the agent that the network `agent` reaches; None: no agent is reachable.
        """
        request = sandbox_pb2.CreateSandboxRequest(
            request_id=request_id,
            image_digest=self.image_digest,
            resources=sandbox_pb2.Resources(
                cpu_millis=round(self.cpus * 1000),
                memory_bytes=self.memory_mb * _MIB,
                disk_bytes=self.disk_mb * _MIB,
                pids=self.pids,
                life_s=self.life_s,
            ),
            network=network_of(self.network, agent),
            env=self.env,
            user=self.user,
            workdir=self.workdir,
            files=[
                files_pb2.FileContent(path=path_bytes(path), content=content_bytes(content))
                for path, content in self.files.items()
            ],
            labels=self.labels,
            ttl_s=self.ttl_s,
            start_timeout_s=self.start_timeout_s,
        )
        if self.build is not None:
            request.build.CopyFrom(self.build)
        elif self.image:
            request.image = self.image
        return request

    def explained(self, error: MeshError) -> MeshError:
        """The error of CreateSandbox, with `image_help` if the error is about the image."""
        has_no_image = error.reason in _IMAGE_ERRORS or error.metadata.get("option") == "build"
        if not (self.image_help and has_no_image):
            return error
        return MeshError(
            error.reason, f"{error.message} {self.image_help}", metadata=error.metadata
        )


def network_of(reach: Reach, agent: RolloutAgent | None = None) -> sandbox_pb2.Network:
    """The contract's message for a network. Raises ValueError."""
    if isinstance(reach, sandbox_pb2.Network):
        return reach
    if reach == "agent" and agent is not None:
        return agent.network()
    if reach in ("none", "agent"):
        return sandbox_pb2.Network(none=sandbox_pb2.NoNetwork())
    if reach == "open":
        return sandbox_pb2.Network(open=sandbox_pb2.OpenNetwork())
    if isinstance(reach, str):
        raise ValueError(f"network is {reach!r}; write 'none', 'open', 'agent' or a list of hosts")
    return sandbox_pb2.Network(hosts=sandbox_pb2.AllowedHosts(hosts=map(_allowed, reach)))


def reaches_agent(reach: Reach) -> bool:
    """Whether a sandbox reaches the gateway of its rollout's agent at `AGENT_PORT`."""
    if isinstance(reach, sandbox_pb2.Network):
        return reach.WhichOneof("kind") == "relay"
    return reach == "agent"


def _allowed(host: str | sandbox_pb2.AllowedHost) -> sandbox_pb2.AllowedHost:
    if isinstance(host, sandbox_pb2.AllowedHost):
        return host
    name, _, port = host.partition(":")
    if not name or (port and not (port.isascii() and port.isdecimal())):
        raise ValueError(f"network has {host!r}; write a host as NAME or NAME:PORT")
    return sandbox_pb2.AllowedHost(name=name, ports=[int(port)] if port else ())


def path_bytes(path: str | bytes) -> bytes:
    """A path as the contract has it; lone surrogates represent bytes that are not UTF-8."""
    return path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")


def content_bytes(content: str | bytes) -> bytes:
    """The bytes of a text or of bytes; surrogates that a model wrote are kept."""
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
