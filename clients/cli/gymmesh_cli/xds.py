"""gym-cli xds."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import click

from gymmesh_cli.exits import DONE, speaks_plainly
from gymmesh_cli.terminal import echo_json


@click.group()
def xds() -> None:
    """Let gRPC clients of any language find services: xds:///agent.NAME."""


@xds.command()
@click.option(
    "--server",
    metavar="HOST:PORT",
    required=True,
    help="The address of the discovery service, whose configuration has discovery.xds: true.",
)
@click.option(
    "--node-id",
    metavar="ID",
    help="What the client calls itself; default: gymmesh- and the name of this machine.",
)
@click.option("--region", default="", metavar="NAME", help="Where the client runs.")
@click.option("--zone", default="", metavar="NAME", help="The zone in the region.")
@speaks_plainly
def bootstrap(server: str, node_id: str | None, region: str, zone: str) -> int:
    """Print the bootstrap file that gRPC's xDS clients read.

    The connection to the control plane is not encrypted.

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
    echo_json(document(server, node_id, region, zone))
    return DONE


def document(server: str, node_id: str, region: str = "", zone: str = "") -> dict[str, Any]:
    """The bootstrap as gRPC's clients want it; Node's insists on the locality."""
    return {
        "xds_servers": [
            {
                "server_uri": server,
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
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
