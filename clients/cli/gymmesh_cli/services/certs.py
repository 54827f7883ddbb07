"""gym-cli certs."""

from __future__ import annotations

from pathlib import Path

import click

from gymmesh_cli.options import json_option
from gymmesh_cli.terminal import report


@click.group()
def certs() -> None:
    """Certificates for trying TLS; for production, use your own authority."""


@certs.command(short_help="Make an authority and certificates for development.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the files go. An authority that is there from before is used again.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A host name or IP address that services are called by, besides those of this machine's"
    " loopback. Repeatable.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 365),
    default=30,
    show_default=True,
    help="How long the certificates hold.",
)
@json_option
def dev(
    names: tuple[str, ...], out: Path, hosts: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Make a throwaway authority, and a certificate for each NAME (default: services, collector).

    FOR DEVELOPMENT: the authority's key lies beside the certificates, unencrypted. Run it again to
    issue new certificates, which running services take up by themselves.

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
    report(as_json, document, [*files, f"FOR DEVELOPMENT, until {made.expires_at}"])
