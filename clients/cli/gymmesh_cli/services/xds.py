"""gym-cli xds."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gymmesh_cli.terminal import echo_json


@click.group()
def xds() -> None:
    """Let gRPC clients in any language find services, for example by the address xds:///agent.NAME."""


@xds.command()
@click.option(
    "--server",
    metavar="HOST:PORT",
    required=True,
    help="Address of the discovery service. The service's configuration must set discovery.xds: "
    "true.",
)
@click.option(
    "--node-id",
    metavar="ID",
    help="Node id of the client. Default: gymmesh-NAME, where NAME is this machine's name.",
)
@click.option(
    "--ca",
    metavar="FILE",
    help="Call the discovery service over TLS, and trust certificates of the authority in FILE.",
)
@click.option("--cert", metavar="FILE", help="Certificate of the client.")
@click.option("--key", metavar="FILE", help="Private key of the certificate --cert.")
@click.option("--region", default="", metavar="NAME", help="Region of the client.")
@click.option("--zone", default="", metavar="NAME", help="Zone of the client within --region.")
def bootstrap(
    server: str,
    node_id: str | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
    region: str,
    zone: str,
) -> None:
    """Print the bootstrap file that gRPC's xDS clients read.

    With --ca, a client connects to the discovery service (the xDS control plane) over TLS, if the
    client's gRPC version supports TLS to control planes. The discovery service's certificate must
    be valid for the HOST of --server. The file does not configure TLS between clients and the
    services that they find.

    \b
      gym-cli xds bootstrap --server 127.0.0.1:9400 > bootstrap.json
      export GRPC_XDS_BOOTSTRAP=$PWD/bootstrap.json
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl --agent xds:///agent.tool_loop
    """
    if not _is_address(server):
        raise click.BadParameter("must be HOST:PORT", param_hint="--server")
    node_id = node_id if node_id is not None else f"gymmesh-{socket.gethostname()}"
    if not node_id or not node_id.isprintable() or len(node_id) > 256:
        raise click.BadParameter("must be 1 to 256 printable characters", param_hint="--node-id")
    from gymmesh_runtime.config import ConfigError
    from gymmesh_runtime.security import ShownFiles

    try:
        ShownFiles(ca=ca, cert=cert, key=key).over()
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    files = {"ca_certificate_file": ca, "certificate_file": cert, "private_key_file": key}
    tls = {name: str(Path(file).absolute()) for name, file in files.items() if file is not None}
    echo_json(document(server, node_id, region, zone, tls))


def document(
    server: str,
    node_id: str,
    region: str = "",
    zone: str = "",
    tls: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The bootstrap as gRPC's clients want it; Node's insists on the locality.

    ``tls``: the files of channel credentials of type `tls`, as gRPC's proposal A65 has them.
    """
    credentials = {"type": "tls", "config": dict(tls)} if tls else {"type": "insecure"}
    return {
        "xds_servers": [
            {"server_uri": server, "channel_creds": [credentials], "server_features": ["xds_v3"]}
        ],
        "node": {
            "id": node_id,
            "cluster": "gymmesh",
            "locality": {"region": region, "zone": zone, "sub_zone": ""},
        },
    }


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname and parts.port) and parts.netloc == text and "@" not in text
    except ValueError:
        return False
