"""Options that belong together: added by one decorator, and taken by a command as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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

    decorated: Any = wrapper
    for option in reversed(options):
        decorated = option(decorated)
    result: F = decorated
    return result
