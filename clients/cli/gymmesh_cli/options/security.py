"""The options by which a command authenticates itself to services elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.terminal import OptionGroup, option

if TYPE_CHECKING:
    from gymmesh_runtime.security import SecurityConfig

_NAMES: Final = ("ca", "cert", "key", "server_name", "token_file")


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The user's options: the arguments of ShownFiles, and the flags on the command line."""

    files: Mapping[str, str | None] = field(default_factory=dict)
    given: tuple[str, ...] = ()

    def refuse(self, without: str = "--agent") -> None:
        """Raise a usage error if an option is set but the command calls no remote service."""
        if self.given:
            raise click.UsageError(f"{self.given[0]} is for remote services; add {without}")

    def over(self, configured: SecurityConfig | None = None) -> SecurityConfig | None:
        """The configured security, overridden by the options.

        Raises ConfigError for options that contradict each other.
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
    option(
        "--ca",
        group=OptionGroup.SECURITY,
        envvar="GYMMESH_CA",
        metavar="FILE",
        help=(
            "Call services over TLS, and trust certificates of the authority in FILE. "
            "[env: GYMMESH_CA]"
        ),
    ),
    option(
        "--cert",
        group=OptionGroup.SECURITY,
        envvar="GYMMESH_CERT",
        metavar="FILE",
        help="Certificate to show to services (mutual TLS). [env: GYMMESH_CERT]",
    ),
    option(
        "--key",
        group=OptionGroup.SECURITY,
        envvar="GYMMESH_KEY",
        metavar="FILE",
        help=("Private key of the certificate --cert. [env: GYMMESH_KEY]"),
    ),
    option(
        "--server-name",
        group=OptionGroup.SECURITY,
        envvar="GYMMESH_SERVER_NAME",
        metavar="NAME",
        help=(
            "Host name in the services' certificates, if the services' addresses have "
            "another host. [env: GYMMESH_SERVER_NAME]"
        ),
    ),
    option(
        "--token-file",
        group=OptionGroup.SECURITY,
        envvar="GYMMESH_TOKEN_FILE",
        metavar="FILE",
        help="File with the bearer token to send to services. [env: GYMMESH_TOKEN_FILE]",
    ),
)
