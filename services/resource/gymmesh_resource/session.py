"""A session as an environment's code sees it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property
from typing import Generic, TypeVar

from gymmesh_resource.model_access import ModelAccess, Models
from gymmesh_resource.session_sandboxes import SessionSandboxes
from gymmesh_resource.task import Task
from gymmesh_sandbox_access import WORKSPACE, SandboxHandle

S = TypeVar("S")


class Session(ModelAccess, Generic[S]):
    """The session of one attempt of a rollout.

    `state` is the environment's own object. `seed` and `random` are the session's only source of
    randomness: two sessions with the same task and seed behave the same. `done`: whether the
    episode is over.
    """

    def __init__(
        self,
        session_id: str,
        task: Task,
        seed: int,
        state: S,
        rollout_id: str = "",
        models: Models | None = None,
        sandboxes: SessionSandboxes | None = None,
    ) -> None:
        self.id = session_id
        self.task = task
        self.seed = seed
        self.state = state
        self.rollout_id = rollout_id
        self._models = models
        self._sandboxes = sandboxes
        self.done = False

    @cached_property
    def random(self) -> random.Random:
        """A random number generator that starts from the seed."""
        return random.Random(self.seed)

    @property
    def sandboxes(self) -> SessionSandboxes:
        """The session's sandboxes by role, which end with it; see `Environment.sandboxes`."""
        if self._sandboxes is None:
            raise RuntimeError("the environment is not being served, so it has no sandboxes")
        return self._sandboxes

    @property
    def sandbox(self) -> SandboxHandle:
        """The sandbox that `Environment.sandbox` declares; it opens when it is first used."""
        return self.sandboxes[WORKSPACE]

    @property
    def lost(self) -> Exception | None:
        """Why a sandbox of the session can't be used any more. There is then no verdict."""
        return None if self._sandboxes is None else self._sandboxes.failure

    def finish(self) -> None:
        """Declare the episode over: the model is not called again."""
        self.done = True


class JudgedSession(Session[S]):
    """A new session for judging a rollout whose own session has ended.

    `lend`: returns the state for the verifier when it first reads it: the rollout's own, or raises.
    None: the verifier sees the new session's state. `failure`: what `lend` raised, which the
    verifier may have caught.
    """

    lend: Callable[[], S] | None = None
    failure: Exception | None = None

    @property
    def state(self) -> S:
        """The state; raises what `lend` raises."""
        if self.lend is not None:
            try:
                self._state = self.lend()
            except Exception as error:
                self.failure = error
                raise
            self.lend = None
        return self._state

    @state.setter
    def state(self, state: S) -> None:
        self._state, self.lend = state, None
