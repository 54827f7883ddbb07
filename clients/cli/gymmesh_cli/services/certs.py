"""gym-cli certs."""

from __future__ import annotations

from pathlib import Path

import click

from gymmesh_cli.options import json_option
from gymmesh_cli.terminal import report


@click.group()
def certs() -> None:
    """Create certificates for a first test of TLS. In production, use your own certificate
    authority.
    """


@certs.command(short_help="Create a certificate authority and certificates for development.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help=(
        "Write the files to this folder. If the folder already has a certificate "
        "authority, the command keeps and uses this authority."
    ),
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help=(
        "Make the certificates valid for this host name or IP address. The certificates "
        "are always valid for this machine's loopback names. Repeatable."
    ),
)
@click.option(
    "--days",
    type=click.IntRange(1, 365),
    default=30,
    show_default=True,
    help="Days until the certificates expire.",
)
@json_option
def dev(
    names: tuple[str, ...], out: Path, hosts: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Create a certificate authority for development, and a certificate for each NAME (default:
    services, collector).

    FOR DEVELOPMENT ONLY: the authority's private key is not encrypted, and is in the folder of the
    certificates. To issue new certificates, run the command again. Running services load the new
    certificates.

    \b
      gym-cli certs dev --out certs
      gym-cli up --config mesh.yaml --set 'security.tls={authority: certs/ca.pem,
          certificate: certs/services.pem, key: certs/services.key}'
      gym-cli collect … --agent 127.0.0.1:9401 --ca certs/ca.pem \\
          --cert certs/collector.pem --key certs/collector.key
    """
    from gymmesh_client.problems import UserError
    from gymmesh_runtime.extras import Extra

    if problem := Extra("certs", ("cryptography",)).problem("gym-cli certs"):
        raise UserError(problem)
    from gymmesh_cli.services.development_certificates import issue

    made = issue(out, names or ("services", "collector"), hosts, days)
    files = [str(path) for path in made.files]
    document = {"for_development": True, "expires_at": made.expires_at, "files": files}
    report(as_json, document, [*files, f"FOR DEVELOPMENT ONLY, valid until {made.expires_at}"])
