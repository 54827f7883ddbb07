"""How prompts go on from known tokens: laws over toy templates, and a table of seams."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.tokens import (
    KnownPrefix,
    Prefix,
    Renders,
    Rewritten,
    Tail,
    View,
    count,
    next_step,
    pack_ids,
)
from gymmesh_model.tokens.continuation import rendered
from gymmesh_responses import common_tokens, unpack_ids
from tests.support.vllm_server import END, Template, decode, encode, letters, render

Json = dict[str, Any]
words = st.text("abcz .\n", min_size=1, max_size=12)


@dataclass(frozen=True)
class Turn:
    """What the model wrote and what came then. splits: written letter by letter."""

    text: str
    reasoning: str
    then: str
    splits: bool
    cut: bool
    resent: bool

    @property
    def message(self) -> Json:
        made: Json = {"role": "assistant", "content": self.text}
        return {**made, "reasoning_content": self.reasoning} if self.reasoning else made

    @property
    def output(self) -> list[int]:
        thought = f"<think>{self.reasoning}</think>" if self.reasoning else ""
        written = thought + self.text
        ids = letters(written) if self.splits else encode(written)
        return ids if self.cut else [*ids, END]


turns = st.builds(
    Turn, words, st.just("") | words, words, st.booleans(), st.booleans(), st.booleans()
)
plain = st.builds(Turn, words, st.just(""), words, st.booleans(), st.booleans(), st.booleans())


class Talk:
    """A conversation with a model behind a template."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.messages: list[Json] = [{"role": "user", "content": "ab"}]
        self.prompt = self._tokens(self.messages, generation=True)
        self.first = count(self.prompt)
        self.rendered = rendered(self.prompt)
        self.views: list[View] = []

    def go_on(self, turn: Turn) -> Tail | Rewritten:
        """The next prompt, after an answer; taken over when it goes on."""
        output = pack_ids(turn.output)
        answered = [*self.messages, turn.message]
        whole = [*answered, {"role": "user", "content": turn.then}]
        prefix = Prefix(
            self.prompt + output, 0, 0, self.first, count(output), not turn.cut, self.rendered
        )
        if turn.resent:
            prefix = dataclasses.replace(prefix, closed=None, rendered=None)
        elif rendered(self.prompt) == self.rendered:
            prefix = dataclasses.replace(prefix, rendered=None, is_rendered=True)
        known, renders = KnownPrefix(prefix, bool(turn.reasoning)), Renders()
        self.views = []
        while isinstance(step := next_step(known, renders), View):
            assert step not in self.views
            self.views.append(step)
            renders.views[step] = self._view(step, answered, whole)
        self.messages = whole
        view = renders.get(View.PROMPT)
        self.rendered = rendered(view)
        if isinstance(step, Tail):
            self.prompt = prefix.tokens + step.tokens
        else:
            self.prompt, self.first = view, count(view)
        return step

    def _view(self, view: View, answered: list[Json], whole: list[Json]) -> bytes:
        if view is View.PROMPT:
            return self._tokens(whole, generation=True)
        if view is View.FIRST:
            return self._tokens(whole[:1])
        if view is View.BEFORE:
            return self._tokens(answered[:-1])
        if view is View.ALTERED:
            other = {**answered[-1], "reasoning_content": "others"}
            return self._tokens([*answered[:-1], other])
        return self._tokens(answered, leaves_open=view is View.OPEN)

    def _tokens(self, messages: list[Json], **how: Any) -> bytes:
        how.setdefault("generation", False)
        return pack_ids(encode(render(messages, None, self.template, **how)))

    @property
    def text(self) -> str:
        return decode(unpack_ids(self.prompt))

    @property
    def expected(self) -> str:
        return render(self.messages, None, self.template, generation=True)


@given(template=st.sampled_from(["keeps", "late_end"]), made=st.lists(turns, max_size=5))
def test_a_template_that_keeps_its_history_goes_on_for_ever(
    template: Template, made: list[Turn]
) -> None:
    """The prompt reads as the template says, in the very tokens that the model wrote."""
    talk = Talk(template)
    for turn in made:
        before = talk.prompt
        step = talk.go_on(turn)
        assert isinstance(step, Tail)
        assert talk.prompt.startswith(before + pack_ids(turn.output))
        assert talk.text == talk.expected


@given(template=st.sampled_from(["drops", "drops_old"]), made=st.lists(turns, max_size=5))
def test_a_template_that_drops_reasoning_goes_on_where_there_was_none(
    template: Template, made: list[Turn]
) -> None:
    """It is a fork exactly where an answer before had reasoning; else the tokens go on."""
    talk = Talk(template)
    for turn in made:
        step = talk.go_on(turn)
        if turn.reasoning:
            assert isinstance(step, Rewritten)
            assert step.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
        else:
            assert isinstance(step, Tail)
        assert talk.text == talk.expected


@given(made=st.lists(plain, min_size=1, max_size=5))
def test_an_answer_written_as_it_is_tokenised_needs_one_rendering(made: list[Turn]) -> None:
    talk = Talk("keeps")
    for turn in made:
        as_is = dataclasses.replace(turn, splits=False, resent=False)
        talk.go_on(as_is)
        # An end of the answer that joins what the template adds is tokenised otherwise.
        assert talk.views == [View.PROMPT]


@given(turn=plain, change=st.sampled_from(["tools", "instructions"]))
def test_another_preamble_is_told_from_a_rewritten_history(turn: Turn, change: str) -> None:
    talk = Talk("keeps")
    message = {"role": "system", "content": change}
    output = pack_ids(turn.output)
    prefix = Prefix(talk.prompt + output, 0, 0, talk.first, count(output), None, None)
    talk.messages = [message, *talk.messages]
    whole = [*talk.messages, turn.message, {"role": "user", "content": "b"}]
    renders = Renders()
    renders.views[View.PROMPT] = talk._view(View.PROMPT, [], whole)
    renders.views[View.FIRST] = talk._tokens(talk.messages)
    step = next_step(KnownPrefix(prefix, reasons=False), renders)
    assert isinstance(step, Rewritten)
    assert step.reason == tokens_pb2.FORK_REASON_PREAMBLE_CHANGED


@pytest.mark.parametrize("missing", [View.CLOSED, View.OPEN])
def test_what_cannot_be_rendered_is_a_fork(missing: View) -> None:
    talk = Talk("keeps")
    turn = Turn("ab", "", "b", splits=True, cut=True, resent=False)
    output = pack_ids(turn.output)
    prefix = Prefix(talk.prompt + output, 0, 0, talk.first, count(output), False, talk.rendered)
    answered = [*talk.messages, turn.message]
    whole = [*answered, {"role": "user", "content": "b"}]
    renders = Renders()
    while isinstance(step := next_step(KnownPrefix(prefix, reasons=False), renders), View):
        renders.views[step] = None if step is missing else talk._view(step, answered, whole)
    assert isinstance(step, Rewritten)
    assert step.reason == tokens_pb2.FORK_REASON_TEMPLATE_REWRITES


@given(ids=st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ids_survive_as_bytes(ids: list[int]) -> None:
    packed = pack_ids(ids)
    assert len(packed) == 4 * len(ids)
    assert unpack_ids(packed) == ids


@given(
    same=st.lists(st.integers(0, 9)),
    one=st.lists(st.integers(0, 9)),
    other=st.lists(st.integers(0, 9)),
)
def test_common_tokens_are_counted(same: list[int], one: list[int], other: list[int]) -> None:
    left, right = same + one, same + other
    expected = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        expected += 1
    assert common_tokens(pack_ids(left), pack_ids(right)) == expected
