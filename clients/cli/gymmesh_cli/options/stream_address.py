"""Options that say where trainers on other machines can read a run's groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.options.shared import FILE
from gymmesh_cli.terminal import OptionGroup, option

_MOST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """An address for the groups, and the file with the token that readers must present.

    Attributes:
        port: 0: the system chooses.
        token_file: empty: the configured identities alone may read.
    """

    host: str
    port: int
    token_file: str = ""


def _address_of(values: dict[str, Any]) -> StreamAddress | None:
    address, token_file = values.pop("stream_listen"), values.pop("stream_token_file")
    if address is None:
        if token_file is not None:
            raise click.UsageError(
                "--stream-token-file needs --stream-listen HOST:PORT; add --stream-listen"
            )
        return None
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= _MOST_PORT):
        raise click.UsageError(
            f"--stream-listen {address}: expected HOST:PORT, such as 0.0.0.0:9500"
        )
    return StreamAddress(host, int(port), "" if token_file is None else str(token_file))


stream_address_options = grouped(
    "stream_address",
    _address_of,
    option(
        "--stream-listen",
        group=OptionGroup.TRAINING,
        metavar="HOST:PORT",
        help=(
            "With --stream: also serve the groups at this address, for trainers on other "
            "machines. The option needs --stream-token-file or the key security.identities. "
            "If other machines can reach the address, the option also needs TLS (the key "
            "security.tls) or `security.insecure: true`."
        ),
    ),
    option(
        "--stream-token-file",
        group=OptionGroup.TRAINING,
        type=FILE,
        metavar="FILE",
        help="With --stream-listen: trainers must send the bearer token in this file.",
    ),
)
