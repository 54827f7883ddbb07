"""A session as an environment's code sees it."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Generic, TypeVar

from .errors import StateGone
from .models import ModelAccess, Models
from .task import Task

S = TypeVar("S")


class Session(ModelAccess, Generic[S]):
    """What belongs to one attempt of a rollout.

    `state` is the environment's own object, `seed` and `random` the session's chance: two
    sessions with the same task and seed behave the same. `done`: whether the episode is over.
    """

    def __init__(
        self,
        session_id: str,
        task: Task,
        seed: int,
        state: S,
        rollout_id: str = "",
        models: Models | None = None,
    ) -> None:
        self.id = session_id
        self.task = task
        self.seed = seed
        self.state = state
        self.rollout_id = rollout_id
        self._models = models
        self.done = False

    @cached_property
    def random(self) -> random.Random:
        """A source of chance that starts from the seed."""
        return random.Random(self.seed)

    def finish(self) -> None:
        """Declare the episode over: the model is not called again."""
        self.done = True


class JudgedSession(Session[S]):
    """A new session in which a rollout is judged whose own is gone.

    While `hidden`, its state is not the rollout's, and whoever reads it gets StateGone;
    `was_read`: whether somebody did.
    """

    environment = ""  # the name of its class
    hidden = False
    was_read = False

    @property
    def state(self) -> S:  # type: ignore[override]  # an attribute in the base
        """The state; raises StateGone while it is hidden."""
        if self.hidden:
            self.was_read = True
            raise StateGone(self.environment)
        return self._state

    @state.setter
    def state(self, state: S) -> None:
        self._state = state
