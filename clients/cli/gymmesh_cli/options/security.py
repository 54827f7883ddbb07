"""The options by which a command authenticates itself to services elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gymmesh_cli.options.groups import grouped

if TYPE_CHECKING:
    from gymmesh_runtime.security import SecurityConfig

_NAMES: Final = ("ca", "cert", "key", "server_name", "token_file")


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """What the user said: the arguments of ShownFiles, and the flags on the command line."""

    files: Mapping[str, str | None] = field(default_factory=dict)
    given: tuple[str, ...] = ()

    def refuse(self, without: str = "--agent") -> None:
        """Raise a usage error where nothing elsewhere is called, for want of an option."""
        if self.given:
            raise click.UsageError(
                f"{self.given[0]} is for services elsewhere; give {without}, too"
            )

    def over(self, configured: SecurityConfig | None = None) -> SecurityConfig | None:
        """The configured security with what the options say laid over it.

        Raises ConfigError for what does not fit together.
        """
        from gymmesh_runtime.security import ShownFiles

        return ShownFiles(**self.files).over(configured)


def _security_of(values: dict[str, Any]) -> SecurityOptions:
    context = click.get_current_context()
    given = tuple(
        f"--{name.replace('_', '-')}"
        for name in _NAMES
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return SecurityOptions({name: values.pop(name) for name in _NAMES}, given)


security_options = grouped(
    "security",
    _security_of,
    click.option(
        "--ca",
        envvar="GYMMESH_CA",
        metavar="FILE",
        help="The authority of the services' certificates: call them over TLS. [env: GYMMESH_CA]",
    ),
    click.option(
        "--cert",
        envvar="GYMMESH_CERT",
        metavar="FILE",
        help="The certificate to show them. [env: GYMMESH_CERT]",
    ),
    click.option("--key", envvar="GYMMESH_KEY", metavar="FILE", help="Its key. [env: GYMMESH_KEY]"),
    click.option(
        "--server-name",
        envvar="GYMMESH_SERVER_NAME",
        metavar="NAME",
        help="The name that their certificates have, where it is not the host of their address."
        " [env: GYMMESH_SERVER_NAME]",
    ),
    click.option(
        "--token-file",
        envvar="GYMMESH_TOKEN_FILE",
        metavar="FILE",
        help="The bearer token to show them. [env: GYMMESH_TOKEN_FILE]",
    ),
)
