"""What programs do to their history: leave out, edit, quote, write themselves."""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2 as pb
from tests.capture_law.conversation import SYSTEMS, TOOLS, Conversation
from tests.capture_law.program import RandomProgram
from tests.capture_law.truth import RESPELLED, REWRITTEN, Segment
from tests.capture_law.words import input_of, text_of, written_by_program
from tests.unit.gateway_tree.wire import message, output


class Rewrites:
    """The rewrites of a random program. Each takes the conversation that it is about."""

    def __init__(self, program: RandomProgram) -> None:
        self._program = program
        self._rng = program.rng
        self._words = program.words

    def drop(self, conversation: Conversation) -> None:
        """Leave out the own answer and say something instead."""
        if conversation.segments and conversation.segments[-1].wrote is not None:
            conversation.segments = conversation.segments[:-1]
            conversation.segments += (self._program.user_input(),)
            self._program.exchange(conversation)

    def keep_fragment(self, conversation: Conversation) -> None:
        """Keep the beginning of an answer that was cut."""
        last = conversation.segments[-1]
        if not last.is_intact or last.wrote is None:
            return
        text = text_of(last.wrote.output).strip()
        cut = text[: len(text) // 2].strip()
        if cut:
            kept = (message("assistant", cut),)
            segment = Segment(("cut", last.key), kept, kept, last.wrote, RESPELLED)
            conversation.segments = (*conversation.segments[:-1], segment)
            conversation.segments += (self._program.user_input(),)
            self._program.exchange(conversation)

    def edit_input(self, conversation: Conversation) -> None:
        """Change an earlier message or output."""
        places = [
            place
            for place, one in enumerate(conversation.segments[:-1])
            if one.wrote is None and not one.is_foreign
        ]
        if not places:
            return
        place = self._rng.choice(places)
        old = conversation.segments[place]
        wire: list[pb.Item] = []
        true: list[pb.Item] = []
        for sent, recorded in zip(old.wire, old.true, strict=True):
            if sent.HasField("message"):
                item = message("user", self._words.unique())
                wire, true = [*wire, item], [*true, item]
            else:
                text = self._words.unique()
                wire.append(output(sent.function_call_output.call_id, text))
                true.append(output(recorded.function_call_output.call_id, text))
        segments = list(conversation.segments)
        segments[place] = input_of(*wire, true=true)
        conversation.segments = tuple(segments)
        self._step(conversation)

    def quote(self, conversation: Conversation) -> None:
        """Say to the model what it wrote."""
        written = [one.wrote for one in conversation.segments if one.is_intact]
        if not written or conversation.segments[-1].wrote is None:
            return
        self._program.answer_tools(conversation)
        quoted = self._rng.choice(written)
        text = f"You wrote: {text_of(quoted.output) if quoted else ''}. {self._words.unique()}"
        conversation.segments += (self._program.user_input(text),)
        self._program.exchange(conversation)

    def edit_answer(self, conversation: Conversation) -> None:
        """Change the text of an earlier answer."""
        places = [
            place
            for place, one in enumerate(conversation.segments)
            if one.is_intact and one.wrote is not None and text_of(one.wrote.output).strip()
        ]
        if not places:
            return
        place = self._rng.choice(places)
        old = conversation.segments[place]
        text = f"Edited: {self._words.unique()}"
        changed, done = [], False
        for item in old.wire:
            if item.HasField("message"):
                if not done:
                    changed.append(message("assistant", text, id=item.message.id))
                done = True
            else:
                changed.append(item)
        reason = RESPELLED if old.is_named else REWRITTEN
        segments = list(conversation.segments)
        segments[place] = Segment(
            ("edited", old.key, text),
            tuple(changed),
            tuple(changed),
            old.wrote,
            reason,
            is_named=old.is_named,
        )
        conversation.segments = tuple(segments)
        self._step(conversation)

    def drop_call(self, conversation: Conversation) -> None:
        """Keep all but one of an answer's tool calls."""
        last = conversation.segments[-1]
        if not last.is_intact or last.wrote is None:
            return
        calls = [item for item in last.wire if item.HasField("function_call")]
        if len(calls) < 2:
            return
        gone = self._rng.choice(calls)
        kept = tuple(item for item in last.wire if item is not gone)
        place = last.wire.index(gone)
        segment = Segment(
            ("fewer", last.key, place), kept, kept, last.wrote, REWRITTEN, is_named=last.is_named
        )
        conversation.segments = (*conversation.segments[:-1], segment)
        self._step(conversation)

    def change_preamble(self, conversation: Conversation) -> None:
        """Go on with another system text or other tools."""
        if self._rng.random() < 0.5:
            conversation.system = SYSTEMS[conversation.system == SYSTEMS[0]]
        else:
            conversation.tools = TOOLS[conversation.tools == TOOLS[0]]
        self._step(conversation)

    def write_answer(self, conversation: Conversation) -> None:
        """Put words into the model's mouth."""
        self._program.answer_tools(conversation)
        conversation.segments += (
            written_by_program(self._words.unique()),
            self._program.user_input(),
        )
        self._program.exchange(conversation)

    def _step(self, conversation: Conversation) -> None:
        self._program.answer_tools(conversation)
        self._program.exchange(conversation)
