"""A right answer to a task. Audits of the verifier get this answer, policies never. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import dumps, new_message

AnswerKind = Literal["text", "number", "choice", "json", "sql", "calls", "code"]
ExpectedCall: TypeAlias = "tuple[str, Mapping[str, Any]] | Mapping[str, Any]"
_CALL_FORM: Final = '(name, arguments) or {"name": name, "arguments": {…}}'
#: The placeholder of the bare answer in a form.
ANSWER: Final = "{answer}"


@dataclass(frozen=True, slots=True)
class Expected:
    r"""An answer that earns the best reward.

    answer: the bare answer, such as `42`; empty if only calls are expected.
    kind: the kind of answer, which decides how an audit varies it.
    form: a message with the answer in it, such as `\boxed{{answer}}`; `{answer}` is replaced.
    calls: the tool calls before the message, in order, each as `(name, arguments)` or as
    `{"name": name, "arguments": arguments}`; stored in the first form.
    turns: the calls of each further turn, for environments that take turns. After the answer, the
    environment takes its turn. Then the policy makes these calls and answers again.
    reward: the reward that the answer earns; None: the environment's highest reward.
    choices: all available choices, for the kind `choice`.

    Raises TypeError for calls in another form, and for an answer that is not text.
    """

    answer: str = ""
    kind: AnswerKind = "text"
    form: str = ANSWER
    calls: Sequence[ExpectedCall] = ()
    reward: float | None = None
    choices: Sequence[str] = ()
    turns: Sequence[Sequence[ExpectedCall]] = ()

    def __post_init__(self) -> None:
        """Raises TypeError for calls of another form, and for an answer that is not text."""
        if not isinstance(self.answer, str):
            raise TypeError(
                f"Expected.answer must be text, but is {type(self.answer).__name__}. Put calls "
                "into calls=, and a number into quotes"
            )
        if isinstance(self.calls, str | Mapping) or not isinstance(self.calls, Iterable):
            raise TypeError(
                f"the expected calls are {self.calls!r}. Give a list whose items are {_CALL_FORM}"
            )
        object.__setattr__(self, "calls", tuple(map(_call, self.calls)))
        turns = tuple(tuple(map(_call, calls)) for calls in self.turns)
        object.__setattr__(self, "turns", turns)
        if turns and not self.answer:
            raise TypeError(
                "'turns' need 'answer', because each expected turn ends with the answer. Set "
                "'answer'"
            )

    @property
    def message(self) -> str:
        """The message that a policy would write; empty if there is none."""
        return self.form.replace(ANSWER, self.answer) if self.answer else ""

    def items(self) -> list[responses_pb2.Item]:
        """The policy's items: the calls, without outputs, and the message."""
        if not self.answer:
            return _call_items(self.calls)
        items: list[responses_pb2.Item] = []
        for calls in (self.calls, *self.turns):
            items += [*_call_items(calls, len(items)), new_message("assistant", self.message)]
        return items


def _call_items(calls: Iterable[ExpectedCall], before: int = 0) -> list[responses_pb2.Item]:
    """Calls as items; before: how many items precede them."""
    return [
        responses_pb2.Item(
            function_call=responses_pb2.FunctionCall(
                name=name,
                call_id=f"call_{number}",
                arguments=dumps(dict(arguments)),
                status="completed",
            )
        )
        for number, (name, arguments) in enumerate(map(_call, calls), start=before + 1)
    ]


def _call(given: ExpectedCall) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments of a call. Raises TypeError for another form."""
    match given:
        case (str(name), Mapping() as arguments) | {
            "name": str(name),
            "arguments": Mapping() as arguments,
        }:
            return name, arguments
    raise TypeError(f"the expected call {given!r} is not {_CALL_FORM}")


ExpectedAnswers: TypeAlias = "Expected | Sequence[Expected] | None"
"""What `Environment.expected` may return: one answer, several equally right ones, or None."""


def is_number(text: str) -> bool:
    """Whether a bare answer is a plain decimal number, rather than words or a formula."""
    return text.strip().removeprefix("-").replace(".", "", 1).isdecimal()


def as_list(given: ExpectedAnswers) -> list[Expected]:
    """The answers as a list. Raises TypeError for anything else."""
    if given is None:
        return []
    answers = [given] if isinstance(given, Expected) else list(given)
    for one in answers:
        if not isinstance(one, Expected):
            raise TypeError(
                f"expected() returned {type(one).__name__}. Return an Expected, a "
                "list of them, or None"
            )
    return answers
