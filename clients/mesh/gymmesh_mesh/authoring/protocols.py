"""The protocols of other frameworks that a command serves an environment with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gymmesh_mesh.config import MeshConfig
from gymmesh_resource.config import PROTOCOLS, McpConfig, ProtocolsConfig
from gymmesh_runtime.addresses import is_local
from gymmesh_runtime.config import ConfigError, nearest

_MCP: Final = "mcp"


@dataclass(frozen=True, slots=True)
class AskedProtocols:
    """The protocol options of a command line: names of protocols, and values for ProtocolsConfig.

    port, host, token_file: None if the configuration decides. tasks: files of tasks by split.
    """

    names: Sequence[str]
    port: int | None = None
    host: str | None = None
    token_file: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)

    def as_option(self, error: ConfigError, environment: str) -> ConfigError:
        """Returns an error that names the option which set the wrong key of the environment's
        protocols. Returns any other error unchanged.
        """
        place = f"environments.{environment}.protocols"
        if error.path != place and not error.path.startswith(f"{place}."):
            return error
        key = error.path.removeprefix(place).lstrip(".").partition(".")[0]
        option = {
            "serve": "--as",
            "": None if self.port is None else f"--as-port {self.port}",
            "host": self.host and f"--as-host {self.host}",
            "token_file": (self.token_file or self.host) and "--as-token-file",
            "tasks": "--as-tasks",
        }.get(key)
        return ConfigError(error.problem, source=option) if option else error


def with_protocols(
    config: MeshConfig, environment: str, asked: AskedProtocols, *, exposed: bool
) -> MeshConfig:
    """The configuration, with an environment that is served with these protocols.

    `exposed`: the environment may listen at an address that other machines can reach. Raises
    ConfigError for unknown protocols.
    """
    known = (_MCP, *PROTOCOLS)
    if asked.host and not is_local(asked.host) and not exposed:
        raise ConfigError(
            f"{asked.host!r} can be reached from other machines, and traffic is not encrypted;"
            " use 127.0.0.1, or add --insecure and --as-token-file",
            source=f"--as-host {asked.host}",
        )
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
