"""The protocols of other frameworks that a command serves an environment with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gymmesh_mesh.config import MeshConfig
from gymmesh_resource.config import PROTOCOLS, McpConfig, ProtocolsConfig
from gymmesh_runtime.config import ConfigError, nearest

_MCP: Final = "mcp"


@dataclass(frozen=True, slots=True)
class AskedProtocols:
    """What a command line says of protocols: their names, and what it sets of ProtocolsConfig.

    port, host, token_file: None: as the configuration says. tasks: files of tasks by split.
    """

    names: Sequence[str]
    port: int | None = None
    host: str | None = None
    token_file: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)


def with_protocols(
    config: MeshConfig, environment: str, asked: AskedProtocols, *, exposed: bool
) -> MeshConfig:
    """The configuration with an environment that is served with these protocols.

    `exposed`: it may listen where other machines reach it. Raises ConfigError for other names.
    """
    known = (_MCP, *PROTOCOLS)
    for name in asked.names:
        if name not in known:
            raise ConfigError(f"there is no protocol {name!r}; {nearest(name, known)}")
    one = config.environments[environment]
    if _MCP in asked.names and one.mcp is None:
        one = replace(one, mcp=McpConfig())
    serve = tuple(name for name in PROTOCOLS if name in asked.names)
    if serve:
        told = {
            "port": asked.port,
            "host": asked.host,
            "token_file": asked.token_file,
            "tasks": dict(asked.tasks) or None,
            "allow_other_hosts": exposed or None,
        }
        own = one.protocols or ProtocolsConfig(serve=serve)
        given = {key: value for key, value in told.items() if value is not None}
        one = replace(one, protocols=replace(own, serve=serve, **given))
    return replace(config, environments={**config.environments, environment: one})
