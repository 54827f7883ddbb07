"""gym-cli serve."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import MeshOptions, json_option, listening_options, mesh_options
from gymmesh_cli.services.protocol_options import asked_protocols, protocol_options
from gymmesh_cli.terminal import (
    GroupedCommand,
    OptionGroup,
    log_format_option,
    logged_as_service,
    option,
    report,
)

if TYPE_CHECKING:
    from gymmesh.discovery.v1.discovery_pb2 import Instance
    from gymmesh_mesh.compose import ServiceKind
    from gymmesh_runtime.telemetry import LogFormat

_PORT = click.IntRange(0, 65535)
# The options that are where one service is served.
_PLACE = ("port", "metrics_port", "health_port", "discovery_address", "instance")
# What an environment offers beside gRPC, by the key of its URL in the registry.
_OFFERED = {"mcp": "its tools over MCP", "protocols": "other frameworks' protocols"}


@click.command(cls=GroupedCommand)
@click.argument(
    "kind", type=click.Choice(["discovery", "model", "sandbox", "environment", "agent", "relay"])
)
@click.argument("name", required=False)
@mesh_options
@option(
    "--discovery",
    "discovery_address",
    group=OptionGroup.LISTEN,
    metavar="HOST:PORT",
    default="",
    help=(
        "If discovery.backend is memory: register with the discovery service at this "
        "address. Agents and relays need the option. Environments, models and sandboxes "
        "can run unregistered. If services register themselves (in Consul), the command "
        "rejects the option."
    ),
)
@listening_options
@option(
    "--port",
    group=OptionGroup.LISTEN,
    type=_PORT,
    default=0,
    help=("Listen on this port. Default: 0 (the operating system picks a free port)."),
)
@option(
    "--metrics-port",
    group=OptionGroup.LISTEN,
    type=_PORT,
    default=0,
    help=("If mesh.metrics is true: serve Prometheus metrics at this port."),
)
@option(
    "--health-port",
    group=OptionGroup.LISTEN,
    type=_PORT,
    help=(
        "Also serve gRPC health checks on this port, without TLS, for probes of "
        "Kubernetes and other systems. The port serves only health checks."
    ),
)
@option(
    "--instance",
    group=OptionGroup.LISTEN,
    metavar="TEXT",
    default="0",
    help=(
        "Suffix of the service's instance id. Each instance of a service needs a "
        "different suffix, such as the name of the host."
    ),
)
@protocol_options
@log_format_option
@json_option
def serve(
    kind: ServiceKind,
    name: str | None,
    mesh: MeshOptions,
    host: str | None,
    insecure: bool,
    advertise_host: str | None,
    log_format: LogFormat | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Serve one service of a configuration, such as an agent, in this process.

    Use this command where another system starts the processes: containers, Kubernetes, Slurm.
    (`gym-cli up` starts all services of a mesh.) The command prints a line when the service is
    ready (SERVING), and logs to stderr. After SIGTERM or Ctrl-C, the service accepts no new work.
    Running calls, attempts and sessions have mesh.drain_s seconds to finish. Then the service
    leaves the registry and exits with code 0.

    NAME is the service's name in the configuration. A discovery service needs no NAME. For an
    environment, NAME can also be a file, a class or function in a file, or an installed
    environment.

    \b
      gym-cli serve environment desk.py --port 9500
      gym-cli serve environment desk.py --as openenv,ors,nemo_gym --as-port 9600
      gym-cli serve discovery --config mesh.yaml --port 9400
      gym-cli serve model policy --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve sandbox boxes --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve environment shop --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve agent tool_loop --config mesh.yaml --discovery 127.0.0.1:9400 --port 9401
      gym-cli serve relay door --config mesh.yaml --discovery 127.0.0.1:9400 --port 9443
    """
    from gymmesh_mesh.config import exposed
    from gymmesh_mesh.processes import ServingPlace, serve_one
    from gymmesh_runtime.config import ConfigError
    from gymmesh_runtime.serving import run

    if not name:
        if kind != "discovery":
            raise click.UsageError(
                f"NAME is missing: name the {kind} of the configuration to serve"
            )
        name = "registry"

    wanted = asked_protocols(kind, **asked)
    place = ServingPlace(
        host=host or "",
        advertise_host=advertise_host or "",
        **{key: asked[key] for key in _PLACE},
    )
    config = mesh.load()
    if kind == "environment" and name not in config.environments:
        from gymmesh_mesh.authoring.placing import with_environment

        config = with_environment(config, name)
        name = config.defaults.environment
    if wanted is not None:
        from gymmesh_mesh.authoring.protocols import with_protocols

        config = with_protocols(config, name, wanted, exposed=insecure)
    if insecure:
        config = exposed(config)
    with logged_as_service(log_format or config.mesh.log_format):
        try:
            run(serve_one(config, kind, name, place, partial(_say_ready, kind, name, as_json)))
        except ConfigError as error:
            raise error if wanted is None else wanted.as_option(error, name) from None


def _say_ready(kind: ServiceKind, name: str, as_json: bool, served: Instance) -> None:
    document = {
        "kind": kind,
        "name": name,
        "id": served.id,
        "address": served.address,
        "metrics_address": served.metrics_address,
    }
    lines = [f"{kind} {name} is SERVING at {served.address} as {served.id}"]
    for key, what in _OFFERED.items():
        if url := served.meta.get(key):
            document[f"{key}_url"] = url
            lines.append(f"{what} at {url}")
    report(as_json, document, lines)
