"""What the tree stores of each call, and how it recognises a recorded answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gymmesh.model.v1 import tokens_pb2
from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.tree.normal_form import AnswerForm, answer_form


class CapturedCall(msgspec.Struct, kw_only=True, eq=False):
    """One call of the rollout.

    Attributes:
        ticket: the call's number in the tree.
        thread: the program's own session and agent, see Hints; both empty if it reports neither.
        lead: a digest of the leading system text.
        offer: a digest of the instructions and tools.
        context: a digest of the whole conversation in the call's request.
        actor: the actor of the call's conversation.
        side_call: the purpose of a side call; empty for all others.
        trained: whether a trainer learns from the call.
        compaction: whether the call requests a summary that will replace the conversation.
        added: whether the call is counted among its actor's calls.
        window: how often the program had replaced its history; None: it does not report that.
        parent: the call with whose conversation this call begins; None for side calls.
        begins: whether a conversation begins with this call: no model wrote anything before.
        led: the call that led to this call, if its conversation begins again for a known reason.
        asked: the items in the call's event: those that no earlier request had.
        continued: how many calls have this call as their parent.
        call_id: the recorded call's id; empty until it is answered.
        output: the answer's items as recorded.
        form: the answer in normal form; None until it is answered.
        waiting: how many requests wait for the answer, or are being answered.
        delivered: whether the whole answer was sent to the program.
    """

    ticket: int
    thread: tuple[str, str]
    lead: bytes
    offer: bytes
    context: bytes
    actor: str = ""
    side_call: str = ""
    trained: bool = True
    compaction: bool = False
    added: bool = False
    window: int | None = None
    parent: CapturedCall | None = None
    begins: bool = False
    led: CapturedCall | None = None
    asked: Sequence[pb.Item] = ()
    continued: int = 0
    call_id: str = ""
    output: tuple[pb.Item, ...] = ()
    form: AnswerForm | None = None
    waiting: int = 0
    delivered: bool = False

    @property
    def before(self) -> CapturedCall | None:
        """The previous call on the call's branch."""
        return self.parent or self.led

    def branch(self) -> Iterator[CapturedCall]:
        """The earlier calls on the call's branch, the latest first."""
        one = self.before
        while one is not None:
            yield one
            one = one.before

    def answer(self, call_id: str, output: Iterable[pb.Item]) -> AnswerForm:
        """The call was answered; `form` is the answer in normal form."""
        self.call_id, self.output = call_id, tuple(output)
        self.form = form = answer_form(self.output)
        return form

    def wrote(self, form: AnswerForm, named: bool) -> bool:
        """Whether this is the recorded answer, in any spelling.

        Args:
            form: the program's version of the answer.
            named: whether ids name this answer. Some dialects cannot send arguments that are not a
                JSON object. For these, only the id decides.
        """
        own = self.form
        if own is None:
            return False
        if own.key == form.key:
            return True
        return (
            named
            and own.bare == form.bare
            and len(own.calls) == len(form.calls)
            and all(
                ours.name == theirs.name
                and (ours.arguments == theirs.arguments or not ours.is_object)
                for ours, theirs in zip(own.calls, form.calls, strict=True)
            )
        )

    def departure(self, form: AnswerForm | None, named: bool) -> tokens_pb2.ForkReason.ValueType:
        """Why a history with different content in place of this answer departs from it.

        RESPELLED for the same calls in different words, and for a beginning of the text (the rest
        of a cut stream); otherwise HISTORY_REWRITTEN.

        Args:
            form: the content in place of the answer; None: nothing.
        """
        own = self.form
        if own is None or form is None:
            return tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
        ours, theirs = own.bare, form.bare
        names = [call.name for call in own.calls]
        same_calls = names == [call.name for call in form.calls]
        is_fragment = not form.calls and bool(theirs) and ours.startswith(theirs)
        if is_fragment or (named and same_calls) or (same_calls and names and ours == theirs):
            return tokens_pb2.FORK_REASON_RESPELLED
        return tokens_pb2.FORK_REASON_HISTORY_REWRITTEN

    def recorded_ids(self) -> list[str]:
        """The recorded ids of the answer's tool calls, in order."""
        return [call.wire_id for call in self.form.calls] if self.form is not None else []


def only(calls: Sequence[CapturedCall]) -> CapturedCall | None:
    """The only call; None if there are none or several."""
    return calls[0] if len(calls) == 1 else None
