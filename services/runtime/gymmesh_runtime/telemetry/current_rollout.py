"""The rollout that the running code belongs to, so that logs and traces name it.

An agent sets it for the whole task of an attempt, an environment around each call of its author's
code. Threads that run a plain method also see it, because they get the caller's context.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import NamedTuple


class RolloutRef(NamedTuple):
    """A rollout, and the run that it belongs to. The run's id is empty if it is unknown."""

    rollout_id: str
    run_id: str = ""


#: That of the running code; None: none, or it is not known.
current_rollout: ContextVar[RolloutRef | None] = ContextVar("gymmesh_current_rollout", default=None)


class for_rollout:
    """A context manager: code inside the context belongs to this rollout.

    It is a class, because it is entered at each call of a tool, and a generator would take twice as
    long.
    """

    __slots__ = ("_rollout_id", "_token")

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._token: Token[RolloutRef | None] | None = None

    def __enter__(self) -> None:
        now = current_rollout.get()
        # An agent in the same process has said it already, and more.
        if now is None or now.rollout_id != self._rollout_id:
            self._token = current_rollout.set(RolloutRef(self._rollout_id))

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            current_rollout.reset(self._token)
