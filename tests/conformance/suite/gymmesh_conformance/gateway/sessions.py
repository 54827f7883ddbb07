"""The recorded sessions: what ten programs send, as data. Pure.

case_files/gateway/*.yaml hold one program each: its dialect and habits, and cases. A case is a list
of steps; a step is one request, the answer that the model writes, and what must be captured.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

_FOLDER: Final = Path(__file__).parent.parent / "case_files" / "gateway"


class SessionHabits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a program sends back what it got.

    Attributes:
        arguments: verbatim, or written anew by JavaScript or with spaces.
        reasoning: whether it sends reasoning back.
        blocks: whether user texts are lists of blocks.
        annotations: whether it sends a text's annotations back, over Responses.
    """

    arguments: Literal["verbatim", "javascript", "spaced"] = "verbatim"
    reasoning: Literal["kept", "dropped"] = "kept"
    blocks: bool = False
    annotations: Literal["kept", "dropped"] = "dropped"


class AnswerCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of an answer."""

    name: str
    arguments: str = "{}"


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model writes."""

    text: str = ""
    calls: tuple[AnswerCall, ...] = ()
    reasoning: str = ""


class StepExpectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be captured of a request.

    Attributes:
        repeats: the step whose answer it gets; no call of its own. All else is not given then.
        parent: the step of the call that it hangs on; empty: none.
        may_hang_on_nothing: whether a gateway may leave the parent out, since the call is detached.
        link, reason, side, trained: as in CaughtCall.
    """

    repeats: str = ""
    parent: str = ""
    may_hang_on_nothing: bool = False
    link: Literal["continuation", "fork", "side"] = "continuation"
    reason: str = ""
    side: str = ""
    trained: bool = True


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a history; exactly one of the first five is given.

    Attributes:
        user, system, assistant: a message of that role, written by the program.
        after: everything that a step sent, and its answer.
        echo: the answer of a step alone; `text` and `without_call` change it.
        tool: the output of a tool call of that step's answer; `call` is its place.
    """

    user: str | None = None
    system: str | None = None
    assistant: str | None = None
    after: str | None = None
    echo: str | None = None
    tool: str | None = None
    call: int = 0
    output: str = ""
    text: str | None = None
    without_call: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request.

    Attributes:
        ask: its name in the case.
        history: the conversation that it sends.
        system: other system text than the program's; empty: none at all.
        tools: other tools than the program's.
        headers: besides the program's.
        params: besides the program's.
        cut: hang up while the model works, and let it answer then. The program gets nothing.
    """

    ask: str
    history: tuple[Entry, ...]
    expect: StepExpectation = StepExpectation()
    answer: StepAnswer | None = None
    system: str | None = None
    tools: tuple[str, ...] | None = None
    headers: dict[str, str] = {}
    params: dict[str, Any] = {}
    cut: bool = False


class SessionCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One session of a program, and the rule that it shows."""

    name: str
    rule: str
    steps: tuple[Step, ...]


class RecordedProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a program's requests."""

    program: str
    version: str
    dialect: Literal["responses", "chat", "messages", "gemini"]
    stream: bool
    cases: tuple[SessionCase, ...]
    system: str = ""
    tools: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    params: dict[str, Any] = {}
    habits: SessionHabits = SessionHabits()


@cache
def load_sessions() -> tuple[RecordedProgram, ...]:
    """All recorded programs. Raises msgspec.ValidationError for data that is wrong."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return tuple(msgspec.yaml.decode(one.read_bytes(), type=RecordedProgram) for one in files)
