"""The configuration of a mesh: its services, by name."""

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
    """The environment, agent and model for task rows that don't name one."""

    environment: str = "math"
    agent: str = "tool_loop"
    model: str = "policy"


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How services run as processes.

    Attributes:
        host: the address that services listen on.
        advertise_host: the address that others connect to. Empty: ``host``, or, if ``host`` stands
            for all addresses of this machine, the machine's only address.
        discovery_port, agent_port: fixed ports of the registry and of the default agent. 0: the
            system chooses, as it does for all other services.
        drain_s: seconds that running calls may take to end at shutdown.
        ready_s: seconds that a start may take.
        transport: "plain" turns off the mux between the services.
        layout: which services share a process (see layout.py).
        cells: the number of cells. 0: one fewer than the processors.
        restarts: how often a process that dies is restarted.
        log_format: with "json" each line of a log is a JSON object.
        traces: export OpenTelemetry traces of rollouts to ``traces_endpoint``.
        traces_endpoint: where traces are sent. Empty: the address in OTEL_EXPORTER_OTLP_ENDPOINT.
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
    """The configuration of a mesh that other machines may reach without security, as with
    `--insecure`.
    """
    security = replace(config.security or SecurityConfig(), insecure=True)
    return replace(config, security=security)
