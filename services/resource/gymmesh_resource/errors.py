"""What environment code raises to say more than "it broke", and errors for its author.

Everything else that environment code raises is a fault of the environment (or of the verifier):
it fails the rollout at that boundary and is never shown to the model.
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
    """A task that this environment cannot run or judge; the task file is to be corrected.

    `field`: the key of the task row that is missing or wrong, such as `expected_answer`.
    `problem`: one clause that says what is wrong with it.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = str(field)
        self.problem = str(problem)
        super().__init__(f"{self.field}: {self.problem}" if self.field else self.problem)


class DefinitionError(ValueError):
    """An environment that cannot be used as it is written or configured; one clear sentence."""


class TookTooLong(Exception):
    """A method took longer than it may; the caller knows what that is called."""


class WrongResult(ValueError):
    """What a method answered cannot be used: a reward out of range, a turn that is none.

    The text says what was answered and what to answer instead. `method`: which one did.
    """

    def __init__(self, problem: str, method: Callable[..., Any] | None = None) -> None:
        self.method = method
        super().__init__(problem)


class StateGone(Exception):
    """A verifier reads the state of a session that is gone. `why` it was not kept, where that is
    known.
    """

    def __init__(self, environment: str, why: str = "") -> None:
        keep = "A class that leaves out verify_needs_session = False keeps it"
        super().__init__(
            f"the verifier of {environment} reads a session's state, and the rollout's session is "
            f"gone and its state was not kept{f': {why}' if why else f'. {keep}'}"
        )


class SandboxGone(Exception):
    """A verifier asks for the sandbox of a session that is gone."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"the verifier of {environment} looks into the session's sandbox, which ended with the "
            "session. A verifier that does with a new sandbox says so: verify_needs_session = False"
        )


class Blocked(Exception):
    """An async method that held up the event loop for longer than it may take.

    `place`: where the method is written, as `file.py:12`.
    """

    def __init__(self, method: str, place: str, seconds: float, limit_s: float) -> None:
        self.method, self.place, self.seconds = method, place, seconds
        super().__init__(
            f"{method} is async and blocked the event loop for {seconds:.1f} s, where it may take "
            f"{limit_s:g} s: nothing else could run meanwhile. Make it a plain def, which runs in "
            "a thread, or put what blocks into await asyncio.to_thread(…)"
        )
