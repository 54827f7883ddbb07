"""The configuration of a mesh: which services there are, by name."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import field
from msgspec.structs import replace

from gymmesh_agent.config import AgentConfig
from gymmesh_discovery.config import DiscoveryConfig as DiscoveryConfig
from gymmesh_model.config import ModelConfig
from gymmesh_relay.config import RelayConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.peers import TransportName
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.telemetry import LogFormat
from gymmesh_sandbox.config import SandboxConfig

_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Layout = Literal["embedded", "cell", "mesh"]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The services of this mesh for task rows that name none."""

    environment: str = "math"
    agent: str = "tool_loop"
    model: str = "policy"


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How services run as processes.

    ``host`` is what they listen on; ``advertise_host`` is the address that others connect to, which
    is ``host`` where it is empty, or this machine's one address where that stands for all of them.
    ``discovery_port`` and ``agent_port`` (of the default agent) are for callers that want a fixed
    address; 0 lets the system choose, as it does for all others. ``drain_s`` is how long running
    calls may take to end at shutdown, ``ready_s`` how long a start may take, in seconds.
    ``transport`` "plain" turns the mux between them off. ``layout`` says what shares a
    process (see layout.py); ``cells`` is how many cells there are, 0 for one per processor but one.
    ``restarts`` is how often each process that dies is started again. ``log_format`` "json" makes
    each line of a log a JSON object. ``traces`` exports OpenTelemetry traces of rollouts, to
    ``traces_endpoint`` or, where that is empty, to what OTEL_EXPORTER_OTLP_ENDPOINT says.
    """

    host: str = "127.0.0.1"
    advertise_host: str = ""
    discovery_port: _Port = 0
    agent_port: _Port = 0
    metrics: bool = True
    drain_s: _Seconds = 10.0
    ready_s: _Seconds = 120.0
    transport: TransportName = "auto"
    layout: Layout = "mesh"
    cells: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    restarts: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    log_format: LogFormat = "text"
    traces: bool = False
    traces_endpoint: str = ""


class MeshConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mesh: services by the name that tasks and other services use.

    An empty configuration is a whole mesh: the embedded model as ``policy``, the
    ``math`` environment and the ``tool_loop`` agent. It has no sandbox service and no
    relay.
    """

    models: dict[str, ModelConfig] = field(default_factory=lambda: {"policy": ModelConfig()})
    environments: dict[str, EnvironmentConfig] = field(
        default_factory=lambda: {"math": EnvironmentConfig()}
    )
    sandboxes: dict[str, SandboxConfig] = field(default_factory=dict)
    relays: dict[str, RelayConfig] = field(default_factory=dict)
    agents: dict[str, AgentConfig] = field(default_factory=lambda: {"tool_loop": AgentConfig()})
    defaults: Defaults = field(default_factory=Defaults)
    mesh: MeshSettings = field(default_factory=MeshSettings)
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    security: SecurityConfig | None = None


def exposed(config: MeshConfig) -> MeshConfig:
    """The configuration of a mesh that may be open to others, as `--insecure` says."""
    security = replace(config.security or SecurityConfig(), insecure=True)
    return replace(config, security=security)
