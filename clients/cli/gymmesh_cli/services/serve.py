"""gym-cli serve."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import MeshOptions, json_option, listening_options, mesh_options
from gymmesh_cli.services.protocol_options import asked_protocols, protocol_options
from gymmesh_cli.terminal import log_format_option, logged_as_service, report

if TYPE_CHECKING:
    from gymmesh.discovery.v1.discovery_pb2 import Instance
    from gymmesh_mesh.compose import ServiceKind
    from gymmesh_runtime.telemetry import LogFormat

_PORT = click.IntRange(0, 65535)
# The options that are where one service is served.
_PLACE = ("port", "metrics_port", "health_port", "discovery_address", "instance")
# What an environment offers beside gRPC, by the key of its URL in the registry.
_OFFERED = {"mcp": "its tools over MCP", "protocols": "other frameworks' protocols"}


@click.command()
@click.argument(
    "kind", type=click.Choice(["discovery", "model", "sandbox", "environment", "agent"])
)
@click.argument("name", required=False)
@mesh_options
@click.option(
    "--discovery",
    "discovery_address",
    metavar="HOST:PORT",
    default="",
    help="The discovery service to register with, where discovery.backend is memory. Agents need"
    " it; an environment, a model or a sandbox service without it is served alone, at its address."
    " Refused where services register by themselves.",
)
@listening_options
@click.option("--port", type=_PORT, default=0, help="0, the default: the system chooses.")
@click.option(
    "--metrics-port", type=_PORT, default=0, help="Of Prometheus metrics, if mesh.metrics is true."
)
@click.option(
    "--health-port",
    type=_PORT,
    help="Serve gRPC health on this port, too, without TLS and with nothing else, for probes.",
)
@click.option(
    "--instance",
    metavar="TEXT",
    default="0",
    help="What the instance id ends with, which tells instances of one service apart: give each"
    " its own, such as the name of its host.",
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
    """Serve the service NAME of a configuration, an agent for example, in this process.

    For what starts processes by itself: containers, Kubernetes, Slurm. Prints a line once it is
    SERVING, logs to stderr, and runs until SIGTERM or Ctrl-C: it then takes no new work, lets
    what runs end within mesh.drain_s seconds (calls, attempts, sessions), leaves the registry
    and ends with 0. A discovery service needs no NAME. NAME of an environment may also be a file, a
    class or a function in one, or an installed environment.

    \b
      gym-cli serve environment desk.py --port 9500
      gym-cli serve environment desk.py --as openenv,ors,nemo_gym --as-port 9600
      gym-cli serve discovery --config mesh.yaml --port 9400
      gym-cli serve model policy --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve sandbox boxes --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve environment shop --config mesh.yaml --discovery 127.0.0.1:9400
      gym-cli serve agent tool_loop --config mesh.yaml --discovery 127.0.0.1:9400 --port 9401
    """
    from gymmesh_mesh.config import exposed
    from gymmesh_mesh.processes import ServingPlace, serve_one
    from gymmesh_runtime.config import ConfigError
    from gymmesh_runtime.serving import run

    if not name:
        if kind != "discovery":
            raise click.UsageError(f"NAME is missing: which {kind} of the configuration?")
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
