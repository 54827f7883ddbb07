"""The command that goes on with a run: the one that began it, with --resume."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import click

_ARGUMENTS: Final = "gymmesh_cli.arguments"
_PROGRAM: Final = ("gym-cli", "collect")
_LEFT_OUT: Final = ("--overwrite", "--resume", "--retry")
_WITH_VALUE: Final = ("--retry",)
# Keys whose values are not to be seen on a terminal or in its log, and a URL's user and password.
_SECRETS: Final = ("key", "headers", "token", "password", "secret")
_CREDENTIAL: Final = re.compile(r"://[^/@\s]+@")


class RemembersArguments(click.Command):
    """A command that can say how it was called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def resume_command(failed: int, not_finished: int) -> str:
    """The current command as one that goes on, to be pasted into a shell; empty when nothing
    failed and nothing is left.
    """
    if not failed and not_finished <= 0:
        return ""
    arguments = click.get_current_context().meta[_ARGUMENTS]
    return resumed(arguments, retry=failed > 0)


def resumed(arguments: Sequence[str], *, retry: bool) -> str:
    """The command of these arguments, with --resume and perhaps --retry failed.

    Values of secrets are left out; where one was given, the shell would ask for it.
    """
    again = [*_PROGRAM, *map(_without_secret, _kept(arguments)), "--resume"]
    if retry:
        again += ["--retry", "failed"]
    return shlex.join(again)


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name not in _LEFT_OUT:
            yield argument
        elif name in _WITH_VALUE and not equals:
            next(rest, None)


def _without_secret(argument: str) -> str:
    """An argument without the value of a secret, unless that names a variable."""
    argument = _CREDENTIAL.sub("://***@", argument)
    key, equals, value = argument.removeprefix("--set=").partition("=")
    is_secret = any(
        part == secret or part.endswith(f"_{secret}")
        for part in key.split(".")
        for secret in _SECRETS
    )
    if not equals or not is_secret or value.startswith("${"):
        return argument
    return f"{argument.removesuffix(value)}***"
