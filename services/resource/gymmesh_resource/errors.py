"""Exceptions that environment code may raise, and errors for its author.

Any other exception from environment code is a fault of the environment or of the verifier. Such an
exception fails the rollout at that boundary and is never shown to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# How the modules of files that were loaded by their path are called.
FILE_MODULE = "gymmesh_environment_"


class ToolError(Exception):
    """A tool's own error, shown to the model as the tool's answer.

    The text should say what to do differently: "No file a.txt: list the folder first."
    """


class TaskInvalid(Exception):
    """A task that this environment cannot run or judge. The author of the task file corrects it.

    `field`: the key of the task row that is missing or wrong, such as `expected_answer`.
    `problem`: one clause on what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = str(field)
        self.problem = str(problem)
        super().__init__(f"{self.field}: {self.problem}" if self.field else self.problem)


class DefinitionError(ValueError):
    """An environment whose code or configuration cannot work; the text is one sentence."""


class TookTooLong(Exception):
    """A method exceeded its time limit; the caller maps it to an error reason.

    `limit_s`: the limit in seconds, for the error's metadata.
    """

    def __init__(self, problem: str, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(problem)


class WrongResult(ValueError):
    """A method returned an unusable value, such as a reward out of range.

    The text says what it returned and what to return instead. `method`: the method.
    """

    def __init__(self, problem: str, method: Callable[..., Any] | None = None) -> None:
        self.method = method
        super().__init__(problem)


class StateGone(Exception):
    """A verifier reads the state of a session that has ended. `why`: why it was not kept."""

    def __init__(self, environment: str, why: str = "") -> None:
        keep = "Remove `verify_needs_session = False` from the class to keep the state"
        super().__init__(
            f"the verifier of the class {environment} reads the session's state, but the session "
            "of this rollout has ended and the state was not "
            f"kept{f': {why}' if why else f'. {keep}'}"
        )


class SandboxGone(Exception):
    """A verifier uses the sandbox of a session that has ended."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"the verifier of the class {environment} uses the session's sandbox, but the sandbox "
            "ended with the session. If the verifier can use a new sandbox, set "
            "`verify_needs_session = False` in the environment's class"
        )


class Blocked(Exception):
    """An async method that blocked the event loop for longer than the limit.

    `place`: where the method is written, as `file.py:12`.
    """

    def __init__(self, method: str, place: str, seconds: float, limit_s: float) -> None:
        self.method, self.place, self.seconds = method, place, seconds
        super().__init__(
            f"{method} is async and blocked the event loop for {seconds:.1f} s (limit: {limit_s:g} "
            "s), so nothing else could run. Make the method a plain `def`, which runs in a thread, "
            "or wrap the blocking call in `await asyncio.to_thread(…)`"
        )
