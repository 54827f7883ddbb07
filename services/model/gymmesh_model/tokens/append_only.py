"""Append-only prompts: the text that a chat template puts after an answer, for any history. Pure.

The tokens that the parent call read and wrote are known, and so are the new messages. The tail is
everything from the end of the answer, through the new messages, to the beginning of the next
answer. It is derived from renderings in which a short invented history replaces the real one:

    history, an answer that ends with ONE, the new messages  ┐ what both renderings end with
    history, an answer that ends with TWO, the new messages  ┘ is the tail

The history's own tokens are not rendered again, so a template that rewrites them (drops earlier
reasoning, reformats tool calls) changes nothing. This is correct only if the tail depends on
nothing but the new messages and the leading system messages. Invented histories begin with the same
system messages, since some templates read there whether the model should think. The condition is
checked once for each `Shape` of new messages, tools and template arguments: with a longer history,
with reasoning, and with different marks. If the check fails, the call is rendered completely, see
`gymmesh_model.tokens.continuation`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_model.tokens.record import Prefix
from gymmesh_responses import TOKEN_BYTES, common_tokens, dumps

Json = dict[str, Any]
Marks = tuple[str, str]

MARKS: Final[Marks] = ("one", "two")
# A word may join what comes behind it into one token where another, or a full stop, does not.
OTHER_MARKS: Final[tuple[Marks, ...]] = (("four", "nine"), ("one.", "two!"))
# Long enough for the templates that count an id's letters.
_CALL_ID: Final = "call00001"
_QUESTION: Final = {"role": "user", "content": "Go on."}
# Some templates have a switch in what a user says, however long ago.
_SWITCHING: Final = {"role": "user", "content": "Go on. /no_think"}
_LATER_QUESTION: Final = {"role": "user", "content": "And now?"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the tail of a prompt may depend on, besides the text of the new messages.

    roles: the roles of the new messages. calls: how many tool calls the answer before them made.
    used_tools: whether the conversation had tool results before that answer. instructed: whether
    the conversation begins with system messages.
    """

    roles: tuple[str, ...]
    calls: int
    used_tools: bool
    instructed: bool


@dataclass(frozen=True, slots=True)
class NewMessages:
    """Chat messages after an answer.

    calls: the tool calls of that answer. used_tools: as in Shape. instructions: the system
    messages that the conversation begins with.
    """

    messages: Sequence[Json]
    calls: Sequence[Json]
    used_tools: bool
    instructions: Sequence[Json] = ()

    @property
    def shape(self) -> Shape:
        roles = tuple(str(message["role"]) for message in self.messages)
        return Shape(roles, len(self.calls), self.used_tools, bool(self.instructions))


@dataclass(frozen=True, slots=True)
class Ends:
    """What the template puts after a last answer. Tokens as bytes; empty: the template puts nothing
    there.

    answer: the tokens after the mark of an answer with the shape's calls; they begin with the rest
    of a call. plain: the tokens after an answer without calls.
    """

    answer: bytes
    plain: bytes


def histories(new: NewMessages) -> list[list[Json]]:
    """Invented conversations before the answer. Tails are derived with the first conversation; the
    others must produce the same tail.
    """
    said = new.instructions
    used = [_called([_call({})]), _result()] if new.used_tools else []
    answered = {"role": "assistant", "content": "Fine."}
    thought = {**answered, "reasoning_content": "Well."}
    return [
        [*said, _QUESTION, *used],
        [*said, _SWITCHING, *used, answered, _LATER_QUESTION],
        [*said, _QUESTION, thought, _LATER_QUESTION, *used],
    ]


def answer(calls: Sequence[Json], mark: str, *, reasons: bool = False) -> Json:
    """An answer that ends with the mark: in its text, or in the arguments of its last call."""
    made: Json = {"role": "assistant", "content": mark}
    if calls:
        function = {"name": calls[-1]["function"]["name"], "arguments": _arguments(mark)}
        made = _called([*calls[:-1], {**calls[-1], "function": function}])
    return {**made, "reasoning_content": "Well."} if reasons else made


def common_tail(one: bytes, other: bytes) -> bytes:
    """The tokens with which both renderings end."""
    shared = common_tokens(_reversed(one), _reversed(other))
    return one[len(one) - shared * TOKEN_BYTES :]


def behind(prefix: Prefix, tail: bytes, ends: Ends) -> bytes | None:
    """The tokens after the known ones; None if the answer's end is unclear.

    tail: the tokens after the mark, as derived. An answer that ended with a stop token has already
    sampled a part of the tail: the template's stop token, or another token in its place. An answer
    that was cut off gets the template's stop token.
    """
    last = prefix.tokens[-TOKEN_BYTES:]
    most = max(len(ends.answer), TOKEN_BYTES)
    if prefix.closed:
        # A template may end an answer only where a message follows, or by that message's head.
        reach = most + TOKEN_BYTES if tail.startswith(ends.answer) else most
        stop = _index(tail[:reach], last)
        if stop >= 0:
            return tail[stop + TOKEN_BYTES :]
    begins = _end_begins(tail, ends, most)
    if begins is None:
        return None
    if prefix.closed is None and tail[begins : begins + TOKEN_BYTES] == last:
        return tail[begins + TOKEN_BYTES :]
    if prefix.closed and ends.plain:
        # The model's own stop token stands for the template's.
        return tail[begins + TOKEN_BYTES :]
    return tail[begins:]


def _end_begins(tail: bytes, ends: Ends, most: int) -> int | None:
    """The offset in the tail at which the template's end of the answer begins, after the rest of a
    call.
    """
    if ends.answer == ends.plain:
        return 0
    if ends.plain:
        place = _index(tail[:most], ends.plain[:TOKEN_BYTES])
        return place if place >= 0 else None
    return len(ends.answer) if tail.startswith(ends.answer) else None


def _index(tokens: bytes, token: bytes) -> int:
    """The offset of the first such token, in bytes, or -1."""
    for place in range(0, len(tokens), TOKEN_BYTES):
        if tokens[place : place + TOKEN_BYTES] == token:
            return place
    return -1


def _reversed(tokens: bytes) -> bytes:
    return array("i", tokens)[::-1].tobytes()


def _called(calls: Sequence[Json]) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def _call(arguments: Json) -> Json:
    text = dumps(arguments).decode()
    return {"id": _CALL_ID, "type": "function", "function": {"name": "look", "arguments": text}}


def _result() -> Json:
    return {"role": "tool", "tool_call_id": _CALL_ID, "content": "Fine."}


def _arguments(mark: str) -> str:
    return dumps({"value": mark}).decode()
