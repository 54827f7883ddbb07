"""Compactions: a conversation that begins anew with a summary that the model wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.normal_form import user_texts
from gymmesh_agent.gateway.tree.reading import ReadConversation

# A shorter summary may stand in a text by chance.
_SHORTEST: Final = 16
# What programs take out of the answer; without these marks it is the whole answer.
_SUMMARY: Final = re.compile(r"<(summary|state_snapshot)>(.*?)</\1>", re.DOTALL)


class Compactions:
    """The answered calls that asked for a summary, and which conversations begin with one."""

    def __init__(self) -> None:
        self._calls: list[tuple[CapturedCall, str]] = []

    def add(self, call: CapturedCall) -> None:
        """A call that asked for a summary was answered."""
        assert call.form is not None
        found = _SUMMARY.search(call.form.text)
        self._calls.append((call, (found[2] if found else call.form.text).strip()))

    def led_to(
        self, read: ReadConversation, call: CapturedCall, new_window: bool
    ) -> CapturedCall | None:
        """The compaction whose summary a conversation begins with; None: there is none.

        The summary stands in a user's message, or as an answer out of its place. A program that
        counts its windows says itself that it replaced the history.

        Args:
            new_window: whether the call is the first of its window.
        """
        if not self._calls:
            return None
        texts: Sequence[str] = user_texts(read.items[read.boundary :])
        for compaction, summary in reversed(self._calls):
            assert compaction.form is not None
            if any(
                one.named is compaction or one.form.key == compaction.form.key
                for one in read.foreign
            ):
                return compaction
            if len(summary) >= _SHORTEST and any(summary in text for text in texts):
                return compaction
        if new_window:
            for compaction, _ in reversed(self._calls):
                before = compaction.window
                if compaction.thread == call.thread and before is not None:
                    return compaction if before < (call.window or 0) else None
        return None
