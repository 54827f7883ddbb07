"""What programs do from turn to turn: go on, branch, ask again, retry."""

from __future__ import annotations

from dataclasses import replace

from tests.capture_law.conversation import Conversation
from tests.capture_law.program import RandomProgram


class Turns:
    """The turns of a random program. Each takes the conversation that it is about."""

    def __init__(self, program: RandomProgram) -> None:
        self._program = program
        self._rng = program.rng

    def step(self, conversation: Conversation) -> None:
        """The next turn."""
        self._program.answer_tools(conversation)
        self._program.exchange(conversation)

    def ask_only(self, conversation: Conversation) -> None:
        """The next turn, whose answer comes later: meanwhile others may ask."""
        self._program.answer_tools(conversation)
        self._program.send(conversation)

    def branch(self, conversation: Conversation) -> None:
        """Go back to an earlier answer and go on otherwise."""
        ends = [end + 1 for end, one in enumerate(conversation.segments) if one.wrote is not None]
        if not ends:
            return
        other = replace(conversation, segments=conversation.segments[: self._rng.choice(ends)])
        other.last = other.segments[-1].wrote
        self._program.conversations.append(other)
        self.step(other)

    def resample(self, conversation: Conversation) -> None:
        """Ask again for an answer that exists already."""
        if not conversation.asked:
            return
        other = replace(conversation, segments=conversation.asked)
        self._program.conversations.append(other)
        self._program.exchange(other)

    def ask_twice(self, conversation: Conversation) -> None:
        """Equal requests side by side, as of sub-agents with equal prompts: two samples."""
        if not conversation.asked:
            return
        program = self._program
        others = [replace(conversation, segments=conversation.asked) for _ in range(2)]
        program.conversations += others
        for other in others:
            program.send(other)
        self._rng.shuffle(others)
        for other in others:
            if self._rng.random() < 0.7:
                program.receive(other)

    def retry(self, conversation: Conversation) -> None:
        """The stream is cut, or the answer takes too long: the same request again."""
        program = self._program
        program.answer_tools(conversation)
        program.send(conversation)
        asked = conversation.waiting
        if self._rng.random() < 0.5 and asked is not None:
            program.answer(asked)
        if self._rng.random() < 0.2:
            # An SDK whose time was up; the gateway may see the end of the connection later.
            late = replace(conversation)
            program.send(conversation, marked=True)
            program.give_up(late)
        else:
            program.give_up(conversation)
            program.send(conversation)
        asked = conversation.waiting
        if self._rng.random() < 0.3 and asked is not None:
            program.answer(asked)
            program.deliver(asked)
            program.send(conversation, marked=True)
        program.receive(conversation)

    def give_up(self, conversation: Conversation) -> None:
        """The next turn, whose answer the program does not wait for; it may ask again later."""
        self.ask_only(conversation)
        if self._rng.random() < 0.5 and conversation.waiting is not None:
            self._program.answer(conversation.waiting)
        self._program.give_up(conversation)

    def fail(self, conversation: Conversation) -> None:
        """The model fails, and the program asks again."""
        self._program.answer_tools(conversation)
        self._program.send(conversation)
        asked = conversation.waiting
        if asked is not None and not asked.is_answered:
            self._program.fail(asked)
            self._program.exchange(conversation)
