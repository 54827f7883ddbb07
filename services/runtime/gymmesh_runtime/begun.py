"""Coroutines that were begun by hand.

Most calls never wait: they run to their end at the first ``send(None)``, and need neither a time
limit nor anything else that is set for a wait. Only those that do wait go on here.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def resumed(call: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Goes on with a coroutine whose first step was taken by ``send(None)``.

    ``waits_for`` is what that step gave. To be awaited in the task that took the step.
    """
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            try:
                waits_for = call.throw(error)
            except StopIteration as ended:
                return ended.value
        else:
            try:
                waits_for = call.send(sent)
            except StopIteration as ended:
                return ended.value


def finish(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits; raises what it raises."""
    try:
        call.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    call.close()
    raise RuntimeError(f"{call!r} waits")
