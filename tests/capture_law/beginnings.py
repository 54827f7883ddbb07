"""Conversations that begin: a new one, a side call, a sub-agent, one with a summary."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.capture_law.conversation import SYSTEMS, Conversation
from tests.capture_law.program import RandomProgram
from tests.capture_law.truth import Segment
from tests.capture_law.words import COMMON_ANSWER, input_of, written_by_program
from tests.unit.gateway_tree.wire import call, message


class Beginnings:
    """The conversations that a random program begins; most with regard to one that it has."""

    def __init__(self, program: RandomProgram) -> None:
        self._program = program
        self._rng = program.rng
        self._words = program.words

    def begin(self) -> None:
        """A conversation of its own."""
        conversation = Conversation(self._program.thread(), window=self._program.window())
        conversation.system = self._rng.choice(SYSTEMS)
        if self._rng.random() < 0.15:
            conversation.segments = (
                self._program.user_input("2+2?"),
                written_by_program("4"),
                self._program.user_input("3+3?"),
            )
        conversation.segments += (self._program.user_input(),)
        self._program.conversations.append(conversation)
        self._program.exchange(conversation)

    def ask_beside(self, conversation: Conversation) -> None:
        """A title, or a suggestion of what to say next."""
        program = self._program.habits.program
        beside = replace(conversation, window=conversation.window)
        if program == "claude-code" and self._rng.random() < 0.5:
            self._program.answer_tools(beside)
            text = f"[SUGGESTION MODE: {self._words.unique()}]"
            beside.segments += (input_of(message("user", text)),)
            self._program.exchange(beside, side="suggestion")
        elif program == "claude-code":
            text = f"Please write a 5-10 word title for: {self._words.unique()}"
            beside.segments = (input_of(message("user", text)),)
            beside.tools = ()
            self._program.exchange(beside, side="title")
        elif program == "opencode":
            beside.system, beside.tools = "You are a title generator.", ()
            beside.segments = conversation.segments[:1]
            self._program.exchange(beside, side="title")

    def compact(self, conversation: Conversation) -> None:
        """Ask for a summary, and begin anew with it."""
        program = self._program.habits.program
        kept = conversation.tools, conversation.system
        self._program.answer_tools(conversation)
        summary = f"{self._words.unique()} is done, {self._words.unique()} is left to do."
        wrote, kind = summary, "turn"
        if program == "claude-code":
            asked = "Your task is to create a detailed summary of the conversation so far."
            wrote = f"<analysis>{self._words.unique()}</analysis>\n<summary>\n{summary}\n</summary>"
        elif program == "codex":
            asked, kind = "Summarize.", "compaction"
            conversation.tools = ()
        elif program != "opencode":
            asked = f"Summarize. {self._words.unique()}"
            wrote = self._rng.choice([summary, COMMON_ANSWER])
            conversation.tools = self._rng.choice([(), conversation.tools])
        else:
            asked, conversation.tools = "Summarize.", ()
            conversation.system = "You are an anchored context summarization assistant."
        conversation.segments += (input_of(message("user", asked)),)
        answer = (message("assistant", wrote),)
        tail = self._tail(conversation)
        self._program.exchange(conversation, kind=kind, answer=answer)
        conversation.tools, conversation.system = kept
        compaction = conversation.last
        if compaction is None or compaction.output != answer:
            return  # it was a repeat
        compaction.asks_summary = program in ("claude-code", "codex", "opencode")
        if conversation.window is not None:
            conversation.window += 1
        if program == "opencode":
            conversation.segments = (
                input_of(message("user", f"What was done? {self._words.unique()}")),
                conversation.segments[-1],
                self._program.user_input(),
                *tail,
            )
        else:
            text = f"Another model wrote:\n{summary}\nGo on. {self._words.unique()}"
            if not compaction.asks_summary:
                text = text.replace(summary, wrote)
                if wrote == summary and self._rng.random() < 0.5:
                    text = wrote
            begun = replace(input_of(message("user", text)), summary=compaction)
            conversation.segments = (begun, *tail)
        self._program.exchange(conversation, compacted=compaction)

    def _tail(self, conversation: Conversation) -> tuple[Segment, ...]:
        """The last answer and what followed it, which some programs keep beside a summary."""
        segments = conversation.segments[:-1]
        if self._rng.random() < 0.6 or len(segments) < 2 or not segments[-2].is_intact:
            return ()
        return segments[-2:]

    def start_sub_agent(self, conversation: Conversation) -> None:
        """An answer calls a tool that starts a sub-agent with a prompt of the model's."""
        prompt = self._rng.choice([self._words.unique(), "Find every use of parse() in the code."])
        answer = (call("task", json.dumps({"prompt": prompt}).encode(), "call_0"),)
        self._program.answer_tools(conversation)
        self._program.exchange(conversation, answer=answer)
        starter = conversation.last
        if starter is None or starter.output != answer:
            return
        sub = Conversation(self._program.agent_thread(conversation.thread), window=None)
        sub.system, sub.tools = "You are a sub-agent.", ("search",)
        sub.segments = (input_of(message("user", "<env>"), message("user", prompt)),)
        if self._rng.random() < 0.5:
            sub.segments = (input_of(message("user", "<env>\n", prompt)),)
        self._program.conversations.append(sub)
        self._program.exchange(sub, starter=starter, is_sub_agent=True)
