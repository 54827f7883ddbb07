"""Compactions: a conversation that begins again with a summary that the model wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.normal_form import AnswerForm, user_texts
from gymmesh_agent.gateway.tree.read_conversation import Foreign, ReadConversation
from gymmesh_agent.gateway.tree.written import WrittenAnswers, before_answers

# A shorter summary may stand in a text by chance.
_SHORTEST: Final = 16
# What programs take out of the answer; without these marks it is the whole answer.
_SUMMARY: Final = re.compile(r"<(summary|state_snapshot)>(.*?)</\1>", re.DOTALL)


class Compactions:
    """The answered calls that requested a summary, and the conversations that begin with one.

    Args:
        answers: everything that the model wrote; it grows while the compactions are used.
    """

    def __init__(self, answers: WrittenAnswers) -> None:
        self._answers = answers
        self._calls: list[tuple[CapturedCall, str]] = []

    def add(self, call: CapturedCall, form: AnswerForm) -> None:
        """A call that requested a summary was answered."""
        if call.compaction:
            found = _SUMMARY.search(form.text)
            self._calls.append((call, (found[2] if found else form.text).strip()))

    def led_to(
        self,
        read: ReadConversation,
        call: CapturedCall,
        new_window: bool,
        own_answers: Sequence[str],
    ) -> CapturedCall | None:
        """The compaction whose summary a conversation begins with; None if there is none.

        The summary is in a user's message, or is an answer at another place, after all earlier
        context, because a recorded conversation may have an earlier summary. Recorded answers at
        other places are older than the summary. A newer one shows that the history after the
        summary was changed. A program that counts its windows itself reports that it replaced the
        history.

        Args:
            new_window: whether the call is the first call of its window.
            own_answers: pieces of the answers that the program itself puts after a summary. An
                answer that no known call wrote may be a later answer that was changed.
        """
        if not self._calls:
            return None
        texts: Sequence[str] = user_texts(read.items[read.known :])
        written = [self._writer(one) for one in read.foreign]
        strange = [
            one
            for writer, one in zip(written, read.foreign, strict=True)
            if writer is None and not any(text in one.form.text for text in own_answers)
        ]
        if strange and not new_window:
            return None
        newest = max((writer.ticket for writer in written if writer is not None), default=0)
        kept = [
            writer
            for writer, one in zip(written, read.foreign, strict=True)
            if writer is not None and writer.wrote(one.form, named=one.named is not None)
        ]
        before_it = {one.ticket for one in call.branch()}
        for compaction, summary in reversed(self._calls):
            if newest > compaction.ticket:
                return None
            if compaction.ticket in before_it:
                continue
            if compaction in kept:
                return compaction
            if len(summary) >= _SHORTEST and any(summary in text for text in texts):
                return compaction
        if new_window:
            for compaction, _ in reversed(self._calls):
                before = compaction.window
                if compaction.thread == call.thread and before is not None:
                    return compaction if before < (call.window or 0) else None
        return None

    def quoted_by(self, read: ReadConversation) -> list[CapturedCall]:
        """The calls that may have led to a restarted conversation, if the program's requests for
        summaries are unknown; empty if it was not a compaction.

        A whole answer is in a user's message, after all earlier context and before the kept
        recorded answers, which are older.
        """
        writers = [self._writer(one) for one in read.foreign]
        newest = max((one.ticket for one in writers if one is not None), default=0)
        if None in writers:
            return []
        found = self._answers.quoted(before_answers(read.items[: read.known], 0))
        if len(found) > 1:
            return found  # each may have led to what was asked before
        found = self._answers.quoted(before_answers(read.items, read.known))
        return found if any(one.ticket > newest for one in found) else []

    def _writer(self, foreign: Foreign) -> CapturedCall | None:
        """The latest call that wrote an answer that is at another place."""
        writers = self._answers.writers(foreign.form)
        return foreign.named or (writers[-1] if writers else None)
