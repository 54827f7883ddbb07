"""Options that belong together: added by one decorator, and taken by a command as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def grouped(
    command: F, name: str, options: Sequence[Callable[..., Any]], gather: Callable[..., Any]
) -> F:
    """The command with these options; it takes what `gather` makes of them as `name`.

    ``gather`` is given the values of all of the command's options, by parameter, and takes out
    those of the group.
    """

    # `wraps` also carries over the options that were added before.
    @functools.wraps(command)
    def wrapper(*args: Any, **values: Any) -> Any:
        group = gather(values)
        return command(*args, **{name: group}, **values)

    return with_options(cast("F", wrapper), options)


def with_options(command: F, options: Sequence[Callable[..., Any]]) -> F:
    """The command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command
