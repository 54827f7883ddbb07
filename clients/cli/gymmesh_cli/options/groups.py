"""Options that belong together: added by one decorator, and taken by a command as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Adds these options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def grouped(
    name: str, gather: Callable[[dict[str, Any]], Any], *options: Callable[[Any], Any]
) -> Callable[[F], F]:
    """Adds these options; the command takes what `gather` makes of them as `name`.

    ``gather`` is given the values of all of the command's options, by parameter, and takes out
    those of the group.
    """

    def decorate(command: F) -> F:
        # `wraps` also carries over the options that were added before.
        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            group = gather(values)
            return command(**{name: group}, **values)

        return together(*options)(cast("F", wrapper))

    return decorate
