"""The actor of each conversation: the program's main agent, its sub-agents, other conversations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from gymmesh_agent.gateway.tree.calls import CapturedCall

# A shorter text may be the argument of a tool by chance.
_SHORTEST_PROMPT: Final = 16
_NOBODY: Final = ("", "")


class Actors:
    """Names for the conversations of a program."""

    def __init__(self) -> None:
        self._main_calls = 0
        self._by_thread: dict[tuple[str, str], CapturedCall] = {}
        self._windows: dict[tuple[tuple[str, str], int], CapturedCall] = {}
        self._named: Counter[str] = Counter()
        self._prompts: defaultdict[str, list[CapturedCall]] = defaultdict(list)
        self._preambles: defaultdict[str, set[tuple[bytes, bytes]]] = defaultdict(set)

    @property
    def has_main(self) -> bool:
        """Whether the main conversation has begun."""
        return self._main_calls > 0

    def of(self, call: CapturedCall) -> str | None:
        """The actor of a call's session and agent; None: this session and agent are new."""
        first = self._by_thread.get(call.thread)
        return first.actor if first is not None else None

    def beginning(self, call: CapturedCall) -> CapturedCall | None:
        """The first call of a call's session and agent; None: this session and agent are new."""
        return self._by_thread.get(call.thread)

    def new(self, kind: str) -> str:
        """A name for a new actor of a kind, such as `subagent-2`."""
        self._named[kind] += 1
        return f"{kind}-{self._named[kind]}"

    def add(self, call: CapturedCall) -> None:
        """A call of a conversation was placed, with its actor."""
        self._main_calls += not call.actor
        self._preambles[call.actor].add((call.lead, call.offer))
        if call.thread != _NOBODY:
            self._by_thread.setdefault(call.thread, call)
            if call.window is not None:
                self._windows.setdefault((call.thread, call.window), call)

    def remove(self, call: CapturedCall) -> None:
        """A call that was added failed."""
        self._main_calls -= not call.actor
        if self._by_thread.get(call.thread) is call:
            del self._by_thread[call.thread]
        if call.window is not None and self._windows.get((call.thread, call.window)) is call:
            del self._windows[call.thread, call.window]

    def is_new_window(self, call: CapturedCall) -> bool:
        """Whether a call is the first call of its window."""
        return call.window is not None and (call.thread, call.window) not in self._windows

    def may_begin_anew(self, writer: CapturedCall, call: CapturedCall) -> bool | None:
        """Whether a call may restart the conversation in which a summary was written. Its
        session and agent must be the same, and its system text, instructions and tools must be
        those of a different call of that actor, because the request for a summary may have
        others. None: the call before the summary is unknown.
        """
        if writer.side_call or writer.thread != call.thread:
            return False
        if (call.lead, call.offer) in self._preambles[writer.actor]:
            return True
        first = writer
        while first.before is not None:
            first = first.before
        return False if first.begins else None

    def add_prompts(self, call: CapturedCall, texts: Iterable[str]) -> None:
        """Remember the arguments of a tool call in the answer of `call`: they may be prompts of
        sub-agents.
        """
        for text in texts:
            stripped = text.strip()
            if len(stripped) >= _SHORTEST_PROMPT:
                self._prompts[stripped].append(call)

    def starters(self, texts: Sequence[str]) -> list[CapturedCall]:
        """The calls whose answer passes one of these texts to a tool, word for word."""
        found: dict[int, CapturedCall] = {}
        for text in texts:
            for call in self._prompts.get(text.strip(), ()):
                found[call.ticket] = call
        return list(found.values())
