"""The answers of a rollout, recognised by their words if no id names them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.normal_form import (
    AnswerForm,
    bare_text,
    given_texts,
    is_model_item,
    user_texts,
)

# An answer with fewer characters, white space aside, may be written again by chance.
_LONG_ENOUGH: Final = 32
# The most characters of user's messages that are searched, and the most answers, the latest first:
# together they bound the work that a program can cause with one request.
_MOST_SEARCHED: Final = 1 << 18
_MOST_ANSWERS: Final = 256


class WrittenAnswers:
    """Everything that the model wrote, and the calls that wrote it."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, list[CapturedCall]] = {}
        self._calls: list[CapturedCall] = []

    def add(self, call: CapturedCall, form: AnswerForm) -> None:
        """A call was answered."""
        self._by_key.setdefault(form.key, []).append(call)
        self._calls.append(call)

    def writers(self, form: AnswerForm) -> Sequence[CapturedCall]:
        """The calls that wrote an answer, in the order in which they were answered."""
        return self._by_key.get(form.key, ())

    def ends_of(self, forms: Sequence[AnswerForm]) -> list[CapturedCall]:
        """The calls that wrote the last of these answers after the others, in their order, on
        one branch; none if one of the answers is too short.
        """
        if not forms or any(_length(form) < _LONG_ENOUGH for form in forms):
            return []
        return [call for call in self.writers(forms[-1]) if _follows(call, forms[:-1])]

    def quoted(self, items: Sequence[pb.Item]) -> list[CapturedCall]:
        """The calls whose whole answer, a text, is in one of the user's messages among `items`.
        An answer that is part of a longer matching answer is not returned.
        """
        texts = [bare_text(text) for text in user_texts(items)]
        if sum(map(len, texts)) > _MOST_SEARCHED:
            return []
        found = [
            (call, call.form.bare)
            for call in self._calls[-_MOST_ANSWERS:]
            if call.form is not None
            and not call.form.calls
            and len(call.form.bare) >= _LONG_ENOUGH
            and any(call.form.bare in text for text in texts)
        ]
        return [
            call
            for call, words in found
            if not any(words != other and words in other for _, other in found)
        ]


def repeats_input(call: CapturedCall) -> bool:
    """Whether an answer's text is also in the model's earlier input, so that the program may
    have copied it from there.
    """
    words = call.form.bare if call.form is not None else ""
    one: CapturedCall | None = call
    while one is not None:
        if any(words in bare_text(text) for text in given_texts(one.asked)):
            return True
        one = one.parent
    return False


def before_answers(items: Sequence[pb.Item], start: int) -> Sequence[pb.Item]:
    """The items from `start` on, up to the first item that a model writes."""
    end = start
    while end < len(items) and not is_model_item(items[end]):
        end += 1
    return items[start:end]


def _length(form: AnswerForm) -> int:
    return len(form.bare) + sum(len(call.arguments) for call in form.calls)


def _follows(call: CapturedCall, forms: Sequence[AnswerForm]) -> bool:
    """Whether the earlier calls on this call's branch wrote these answers, in their order."""
    left = list(forms)
    before = call.before
    while left and before is not None:
        if before.form is not None and before.form.key == left[-1].key:
            left.pop()
        before = before.before
    return not left
