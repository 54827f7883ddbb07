"""A random program in front of a tree: what it sends, and what it gets.

After each request the tree's word is held against the truth: it is right, or says that it does not
know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest, Hints
from gymmesh_agent.gateway.tree import CallTree, RepeatedCall
from tests.capture_law.checks import PlacementChecks, WrongPlace, said
from tests.capture_law.compare import flat
from tests.capture_law.conversation import Conversation
from tests.capture_law.spelling import Habits
from tests.capture_law.truth import Segment, Thread, TrueCall, Truth
from tests.capture_law.words import Words, input_of
from tests.unit.gateway_tree.wire import TAG, output, request


class RandomProgram:
    """One rollout of a random program: its habits, its conversations, and the tree.

    Args:
        links: counts the links that the tree gave.

    Attributes:
        conversations: all that it has begun; the current ones are among them.
        log: a line for each request and answer.
    """

    def __init__(self, rng: Random, links: Counter[str]) -> None:
        self.rng = rng
        self.habits = Habits.drawn(rng)
        self.words = Words(rng)
        self.tree = CallTree(TAG, self.habits.program)
        self.conversations: list[Conversation] = []
        self.log: list[str] = []
        self._truth = Truth()
        self._checks = PlacementChecks(self._truth, links)
        self._threads = 0

    # ---- requests and answers -----------------------------------------------------------------

    def exchange(
        self,
        conversation: Conversation,
        *,
        answer: Sequence[pb.Item] | None = None,
        kind: str = "turn",
        side: str = "",
        compacted: TrueCall | None = None,
        starter: TrueCall | None = None,
        is_sub_agent: bool = False,
    ) -> None:
        """Send a request and put its answer into the history."""
        self.send(
            conversation,
            kind=kind,
            side=side,
            compacted=compacted,
            starter=starter,
            is_sub_agent=is_sub_agent,
        )
        self.receive(conversation, answer)

    def send(
        self,
        conversation: Conversation,
        *,
        kind: str = "turn",
        side: str = "",
        marked: bool = False,
        compacted: TrueCall | None = None,
        starter: TrueCall | None = None,
        is_sub_agent: bool = False,
    ) -> None:
        """Send a request and hold the tree's word against the truth."""
        asked = self._request(conversation, kind, marked=marked)
        placed = self.tree.place(asked)
        preamble = (conversation.system, conversation.tools)
        thread = conversation.thread
        conversation.asked = conversation.segments
        repeated = self._truth.repeated(asked.digest, thread, marked=marked)
        if repeated or isinstance(placed, RepeatedCall):
            self.log.append(f"repeats one of {[call.number for call in repeated]}")
            found = [call for call in repeated if call.ticket == placed.ticket]
            if not found or not isinstance(placed, RepeatedCall):
                raise WrongPlace(f"{placed} in place of a repeat")
            found[0].waiting += 1
            conversation.waiting = found[0]
            return
        expected = self._truth.expected(
            conversation.segments,
            preamble,
            thread,
            side=side,
            compacted=compacted,
            starter=starter,
            is_sub_agent=is_sub_agent and bool(thread[1]),
        )
        made = TrueCall(
            number=len(self._truth.calls) + 1,
            context=tuple(segment.key for segment in conversation.segments),
            said=tuple(flat(_true_items(conversation))),
            preamble=preamble,
            thread=thread,
            side=side,
            ticket=placed.ticket,
            waiting=1,
            digest=asked.digest,
        )
        self.log.append(f"c{made.number} {said(expected)} <- {made.context[-3:]}")
        also = self._truth.equal_explanations(expected, conversation.segments, preamble, thread)
        named = [one for one in also if one.parent and one.parent.call_id == placed.parent]
        expected = named[0] if named else expected
        made.continues = expected.parent if expected.continues else None
        self._checks.check(expected, placed, asked, conversation, made)
        self._truth.calls.append(made)
        conversation.waiting = made

    def _request(self, conversation: Conversation, kind: str, *, marked: bool) -> GatewayRequest:
        session, agent = conversation.thread
        hints = Hints(
            session=session,
            agent=agent,
            request_kind=kind if self.habits.program == "codex" else "",
            window=conversation.window,
            retries=int(marked),
        )
        tools: list[dict[str, Any]] = [
            {"type": "function", "name": name} for name in conversation.tools
        ]
        wire = [item for segment in conversation.segments for item in segment.wire]
        return request(wire, system=conversation.system, tools=tools, hints=hints)

    def receive(self, conversation: Conversation, answer: Sequence[pb.Item] | None = None) -> None:
        """The answer comes, and the program puts it into its history."""
        asked = conversation.waiting
        if asked is None:
            return
        self.answer(asked, answer)
        self.deliver(asked)
        conversation.waiting, conversation.last = None, asked
        segment = self.habits.echoed(asked, self.rng)
        if segment.wire:
            conversation.segments = (*conversation.asked, segment)

    def answer(self, asked: TrueCall, answer: Sequence[pb.Item] | None = None) -> None:
        """The model answers, unless it has."""
        if not asked.is_answered:
            asked.is_answered = True
            asked.output = tuple(self.words.answer() if answer is None else answer)
            asked.call_id = f"c{asked.number}"
            self.log.append(f"{asked.call_id} answers {flat(asked.output)}")
            self.tree.answered(asked.ticket, asked.call_id, asked.output)
            self._checks.answered(asked)

    def deliver(self, asked: TrueCall) -> None:
        """The program has the whole answer."""
        asked.is_delivered = True
        asked.waiting -= 1
        self.tree.delivered(asked.ticket)

    def give_up(self, conversation: Conversation) -> None:
        """The program hangs up before it has the whole answer."""
        asked = conversation.waiting
        if asked is not None:
            self.log.append(f"c{asked.number} is given up")
            asked.waiting -= 1
            conversation.waiting = None
            self.tree.given_up(asked.ticket)

    def fail(self, asked: TrueCall) -> None:
        """The model fails."""
        self.log.append(f"c{asked.number} fails")
        asked.is_failed = True
        self.tree.failed(asked.ticket)
        for other in self.conversations:
            if other.waiting is asked:
                other.waiting = None

    # ---- histories ----------------------------------------------------------------------------

    def answer_tools(self, conversation: Conversation) -> None:
        """Put the outputs of the last answer's calls behind it, or else a user's message."""
        last = conversation.segments[-1]
        calls = [item.function_call for item in last.wire if item.HasField("function_call")]
        if last.wrote is None or not calls:
            if last.wrote is not None or last.is_foreign:
                conversation.segments += (self.user_input(),)
            return
        ids = {
            sent.call_id: recorded
            for sent, recorded in zip(calls, _recorded_ids(last), strict=True)
        }
        wire, true = [], []
        for one in calls:
            text = self.rng.choice(["ok", self.words.unique()])
            wire.append(output(one.call_id, text))
            true.append(output(ids[one.call_id], text))
        segment = input_of(*wire, true=true)
        # The outputs of two answers may be equal, and yet they are not the same.
        conversation.segments += (replace(segment, key=(*_key(segment.key), "after")),)

    def user_input(self, text: str = "") -> Segment:
        """A user's message with this text, or with one of its own."""
        return input_of(self.words.user(text))

    def thread(self) -> Thread:
        """The session and agent of one more conversation, as the program names them."""
        if not self.habits.sessions:
            return "", ""
        self._threads += 1
        return f"session-{self._threads}", ""

    def agent_thread(self, thread: Thread) -> Thread:
        """Those of one more sub-agent of a conversation."""
        if not (self.habits.sessions and self.habits.sub_agent_ids):
            return thread
        self._threads += 1
        return thread[0], f"agent-{self._threads}"

    def window(self) -> int | None:
        """The first window of a conversation of a program that counts them."""
        return 0 if self.habits.program == "codex" else None


def _recorded_ids(segment: Segment) -> list[str]:
    return [item.function_call.call_id for item in segment.true if item.HasField("function_call")]


def _key(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)


def _true_items(conversation: Conversation) -> list[pb.Item]:
    return [item for segment in conversation.segments for item in segment.true]
