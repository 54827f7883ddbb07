"""gym-cli up."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gymmesh_cli.options import MeshOptions, json_option, listening_options, mesh_options
from gymmesh_cli.terminal import (
    GroupedCommand,
    OptionGroup,
    echo,
    echo_json,
    log_format_option,
    logged_as_service,
    one_line,
    option,
)

if TYPE_CHECKING:
    from gymmesh_mesh import ServiceInfo
    from gymmesh_mesh.config import DiscoveryConfig, MeshConfig


@click.command(cls=GroupedCommand)
@mesh_options
@listening_options
@option(
    "--layout",
    group=OptionGroup.RUNNING,
    type=click.Choice(["embedded", "cell", "mesh"]),
    help=(
        "Which services share a process. embedded: all services share one process. cell: "
        "several equal processes (cells), each with an agent and the environments and "
        "models that the agent needs. mesh: each service has its own process. Default: "
        "the key mesh.layout, or else mesh."
    ),
)
@option(
    "--cells",
    group=OptionGroup.RUNNING,
    type=click.IntRange(1, 1024),
    help=(
        "With --layout cell: number of cells. Default: the number of processors minus 1. "
        "The remaining processor is for the collector."
    ),
)
@option(
    "--discovery",
    group=OptionGroup.LISTEN,
    metavar="WHERE",
    help=(
        "Where services register. memory: the mesh's own discovery service (default). "
        "consul: the Consul agent at the address discovery.consul.address. If no Consul "
        "agent answers, gym-cli starts a development agent. consul://HOST:PORT: a "
        "running Consul agent. kubernetes or kubernetes://NAMESPACE: like memory, plus "
        "the services that Kubernetes lists."
    ),
)
@option(
    "--consul-binary",
    group=OptionGroup.LISTEN,
    metavar="PATH",
    help=(
        "Path of the Consul program that --discovery consul starts. Default: the key "
        "discovery.binary, or else consul."
    ),
)
@option(
    "--restart",
    "restarts",
    group=OptionGroup.RUNNING,
    type=click.IntRange(0, 1000),
    metavar="N",
    help=(
        "Restart a service that dies, up to N times per service. With 0, all services "
        "stop if one service dies. Default: the key mesh.restarts, or else 0."
    ),
)
@option(
    "--observe",
    group=OptionGroup.MONITORING,
    is_flag=True,
    help=(
        "Also start Prometheus on 127.0.0.1. Prometheus collects the metrics of the "
        "mesh's services and uses the alert rules of gymmesh. When the mesh stops, the "
        "command deletes the data of Prometheus."
    ),
)
@option(
    "--prometheus",
    group=OptionGroup.MONITORING,
    metavar="PATH",
    help=("Path of the Prometheus program that --observe starts. Default: prometheus."),
)
@option(
    "--logs", group=OptionGroup.MONITORING, is_flag=True, help="Show the services' logs on stderr."
)
@log_format_option
@json_option
def up(
    mesh: MeshOptions,
    host: str | None,
    insecure: bool,
    discovery: str | None,
    consul_binary: str | None,
    observe: bool,
    prometheus: str | None,
    logs: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Start the services of a configuration as processes, and print the services' addresses.

    The command waits until all services are ready (SERVING), then runs until Ctrl-C. Ctrl-C stops
    the services in reverse order (exit code 0). The operating system chooses the ports, except for
    ports that the keys mesh.discovery_port and mesh.agent_port set.

    \b
      gym-cli up --config mesh.yaml
      gym-cli up --config mesh.yaml --set mesh.agent_port=9401
      gym-cli up --config mesh.yaml --layout cell --cells 8
      gym-cli up --config mesh.yaml --discovery consul://127.0.0.1:8500 --restart 3
      gym-cli up --config mesh.yaml --observe

    Then, in another terminal:

    \b
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl --agent 127.0.0.1:9401
    """
    import asyncio

    from msgspec.structs import replace

    from gymmesh_mesh import run_up
    from gymmesh_mesh.config import exposed
    from gymmesh_runtime.serving import prepare_process

    config = mesh.load()
    if settings["cells"] is not None and (settings["layout"] or config.mesh.layout) != "cell":
        raise click.UsageError("--cells needs --layout cell")
    if prometheus is not None and not observe:
        raise click.UsageError("--prometheus needs --observe")
    given = {name: value for name, value in settings.items() if value is not None}
    found = _discovery(config.discovery, discovery, consul_binary)
    config = replace(config, mesh=replace(config.mesh, **given), discovery=found)
    if insecure:
        config = exposed(config)
    program = (prometheus or "prometheus") if observe else None
    on_ready = partial(_say_ready, config, as_json)
    echoed = {"echo": lambda line: echo(one_line(line), err=True)} if logs else {}
    log_format = config.mesh.log_format
    with logged_as_service(log_format) if log_format == "json" else nullcontext():
        prepare_process()
        asyncio.run(run_up(config, host=host, on_ready=on_ready, prometheus=program, **echoed))


def _say_ready(config: MeshConfig, as_json: bool, services: list[ServiceInfo]) -> None:
    if as_json:
        documents = [asdict(one) for one in services]
        for document in documents:
            for key in ("mcp_url", "protocols_url"):
                if not document[key]:
                    del document[key]
        echo_json(documents)
    else:
        echo(as_text(services, _shared(config.discovery), _shown(config)))


def _shared(found: DiscoveryConfig) -> str:
    """What `--agent` calls the place where services register by themselves; empty: none."""
    if found.backend != "consul":
        return ""
    return f"consul://{found.consul.address.rpartition('://')[2]}"  # https is the configuration's


def _discovery(found: DiscoveryConfig, where: str | None, binary: str | None) -> DiscoveryConfig:
    """The discovery that options gave. Raises UsageError."""
    from msgspec.structs import replace

    from gymmesh_mesh import read_target
    from gymmesh_runtime.config import ConfigError

    found = replace(found, binary=binary or found.binary)
    if where is None:
        return found
    if where in ("memory", "kubernetes"):
        return replace(found, backend=where)
    if where == "consul":
        return replace(found, backend="consul", start=True)
    if not where.startswith(("consul://", "kubernetes://")):
        raise click.UsageError(
            "--discovery: expected memory, consul, consul://HOST:PORT, kubernetes or "
            "kubernetes://NAMESPACE"
        )
    try:
        target = read_target(where, found)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    if target.agent:
        raise click.UsageError(f"--discovery: expected {where.rpartition('/')[0]}, without a path")
    return replace(target.discovery, start=False)


def _shown(config: MeshConfig) -> str:
    """The options by which a collector authenticates itself."""
    security = config.security
    if security is None:
        return ""
    options = ""
    if security.tls is not None:
        options = f" --ca {security.tls.authority}"
        if security.tls.client_certificates == "required":
            options += " --cert FILE --key FILE"
    collectors = [one for one in security.identities.values() if "collect" in one.may]
    if any(one.token_file or one.token_sha256 for one in collectors):
        by_certificate = any(one.certificates for one in collectors)
        options += " [--token-file FILE]" if by_certificate else " --token-file FILE"
    return options


def as_text(services: list[ServiceInfo], shared: str, shown: str = "") -> str:
    """A table of the services, and how to collect; `shared`: the Consul where they are found,
    `shown`: the options by which a collector authenticates itself.
    """
    rows = [("SERVICE", "NAME", "ADDRESS", "METRICS", "PID")]
    rows += [
        (one.kind, one.name, one.address or "(inside)", one.metrics_address or "–", str(one.pid))
        for one in services
        if one.kind != "prometheus"
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    lines = [
        "  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for one in services:
        if one.kind == "prometheus":
            lines += ["", f"Prometheus: http://{one.address}"]
    offered = [one for one in services if one.mcp_url]
    if offered:
        lines += ["", *(f"tools of {one.name} over MCP: {one.mcp_url}" for one in offered)]
    spoken = [one for one in services if one.protocols_url]
    if spoken:
        lines += ["", *(f"other protocols of {one.name}: {one.protocols_url}" for one in spoken)]
    first = next((one for one in services if one.kind == "agent"), None)
    if first is not None:
        agents = [one.address for one in services if one.kind == "agent" and one.name == first.name]
        if shared:
            agents = [f"{shared}/{first.name}"]
        named = " ".join(f"--agent {address}" for address in agents)
        lines += ["", f"ready; collect with: gym-cli collect … {named}{shown}"]
    return "\n".join(map(one_line, lines))
