"""A random program that does to its history what agent programs do, in front of a tree.

Each session has habits (how it spells what it sends back) and takes random steps. After each
request the tree's word is held against the truth: it is right, or says that it does not know.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest, Hints
from gymmesh_agent.gateway.tree import CallTree, NewCall, RepeatedCall
from tests.capture_law.compare import flat
from tests.capture_law.spelling import INVALID, Habits
from tests.capture_law.truth import (
    CONTINUATION,
    FORK,
    RESPELLED,
    REWRITTEN,
    SIDE,
    UNKNOWN,
    Expected,
    Segment,
    TrueCall,
    Truth,
)
from tests.unit.gateway_tree.wire import TAG, call, message, output, reasoning, request

SYSTEMS = ("You are an agent.", "You are an agent. Today is Tuesday.")
TOOLS = (("shell",), ("shell", "edit"))


# A long answer that models give more than once.
_COMMON = "I look at the files of the repository first."


class WrongPlace(AssertionError):
    """The tree said something that is not so."""


@dataclass(eq=False)
class Conversation:
    """One history that the program keeps.

    Attributes:
        asked: the segments of its last request.
        waiting: the call whose answer it waits for.
        last: the call whose answer is its last segment.
    """

    thread: tuple[str, str]
    segments: tuple[Segment, ...] = ()
    system: str = SYSTEMS[0]
    tools: tuple[str, ...] = TOOLS[0]
    window: int | None = None
    asked: tuple[Segment, ...] = ()
    waiting: TrueCall | None = None
    last: TrueCall | None = None


class Session:
    """One rollout of a random program.

    Args:
        unknown: counts the links that the tree gave.
    """

    def __init__(self, rng: Random, links: Counter[str]) -> None:
        self._rng = rng
        self._links = links
        self.habits = Habits.drawn(rng)
        self.tree = CallTree(TAG, self.habits.program)
        self.truth = Truth()
        self.log: list[str] = []
        self._texts = 0
        self._threads = 0
        self._actors: dict[int, str] = {}
        self._rebuilt: dict[int, list[pb.Item]] = {}
        self._conversations: list[Conversation] = []

    def run(self, steps: int) -> None:
        """Take that many steps. Raises WrongPlace."""
        self._begin()
        actions: list[tuple[int, Callable[[Conversation], None]]] = [
            (30, self._step),
            (4, self._branch),
            (3, self._resample),
            (4, self._retry),
            (3, self._drop),
            (3, self._keep_fragment),
            (3, self._edit_input),
            (2, self._quote),
            (3, self._edit_answer),
            (2, self._drop_call),
            (2, self._change_preamble),
            (2, self._write_answer),
            (4, self._ask_beside),
            (4, self._compact),
            (5, self._start_sub_agent),
            (2, self._fail),
            (3, self._ask_only),
            (2, lambda _: self._begin()),
        ]
        weights, doers = zip(*actions, strict=True)
        for _ in range(steps):
            conversation = self._rng.choice(self._conversations)
            if conversation.waiting is not None:
                self._receive(conversation)
            else:
                self._rng.choices(doers, weights)[0](conversation)

    # ---- what programs do ---------------------------------------------------------------------

    def _begin(self) -> None:
        """A conversation of its own."""
        conversation = Conversation(self._thread(), window=self._window())
        conversation.system = self._rng.choice(SYSTEMS)
        if self._rng.random() < 0.15:
            conversation.segments = (
                self._input(self._user("2+2?")),
                self._foreign("4"),
                self._input(self._user("3+3?")),
            )
        conversation.segments += (self._input(self._user()),)
        self._conversations.append(conversation)
        self._exchange(conversation)

    def _step(self, conversation: Conversation) -> None:
        """The next turn."""
        self._answer_tools(conversation)
        self._exchange(conversation)

    def _ask_only(self, conversation: Conversation) -> None:
        """The next turn, whose answer comes later: meanwhile others may ask."""
        self._answer_tools(conversation)
        self._send(conversation)

    def _branch(self, conversation: Conversation) -> None:
        """Go back to an earlier answer and go on otherwise."""
        ends = [end + 1 for end, one in enumerate(conversation.segments) if one.wrote is not None]
        if not ends:
            return
        other = replace(conversation, segments=conversation.segments[: self._rng.choice(ends)])
        other.last = other.segments[-1].wrote
        self._conversations.append(other)
        self._step(other)

    def _resample(self, conversation: Conversation) -> None:
        """Ask once more for what is there already."""
        if not conversation.asked:
            return
        other = replace(conversation, segments=conversation.asked)
        self._conversations.append(other)
        self._exchange(other)

    def _retry(self, conversation: Conversation) -> None:
        """The stream is cut, or the answer takes too long: the same request again."""
        self._answer_tools(conversation)
        self._send(conversation)
        asked = conversation.waiting
        if self._rng.random() < 0.5 and asked is not None:
            self._answer(asked)
        self._send(conversation)
        if self._rng.random() < 0.3 and asked is not None:
            self._answer(asked)
            self._deliver(asked)
            self._send(conversation, marked=True)
        self._receive(conversation)

    def _fail(self, conversation: Conversation) -> None:
        """The model fails, and the program asks again."""
        self._answer_tools(conversation)
        self._send(conversation)
        asked = conversation.waiting
        if asked is not None and not asked.is_answered:
            self.log.append(f"c{asked.number} fails")
            asked.is_failed = True
            self.tree.failed(asked.ticket)
            for other in self._conversations:
                if other.waiting is asked:
                    other.waiting = None
            self._exchange(conversation)

    def _drop(self, conversation: Conversation) -> None:
        """Leave out the own answer and say something instead."""
        if conversation.segments and conversation.segments[-1].wrote is not None:
            conversation.segments = conversation.segments[:-1]
            conversation.segments += (self._input(self._user()),)
            self._exchange(conversation)

    def _keep_fragment(self, conversation: Conversation) -> None:
        """Keep the beginning of an answer that was cut."""
        last = conversation.segments[-1]
        if not last.is_intact or last.wrote is None:
            return
        text = _text_of(last.wrote.output).strip()
        cut = text[: len(text) // 2].strip()
        if cut:
            kept = (message("assistant", cut),)
            segment = Segment(("cut", last.key), kept, kept, last.wrote, RESPELLED)
            conversation.segments = (*conversation.segments[:-1], segment)
            conversation.segments += (self._input(self._user()),)
            self._exchange(conversation)

    def _edit_input(self, conversation: Conversation) -> None:
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
                item = message("user", self._unique())
                wire, true = [*wire, item], [*true, item]
            else:
                text = self._unique()
                wire.append(output(sent.function_call_output.call_id, text))
                true.append(output(recorded.function_call_output.call_id, text))
        segments = list(conversation.segments)
        segments[place] = self._input(*wire, true=true)
        conversation.segments = tuple(segments)
        self._step(conversation)

    def _quote(self, conversation: Conversation) -> None:
        """Say to the model what it wrote."""
        written = [one.wrote for one in conversation.segments if one.is_intact]
        if not written or conversation.segments[-1].wrote is None:
            return
        self._answer_tools(conversation)
        quoted = self._rng.choice(written)
        text = f"You wrote: {_text_of(quoted.output) if quoted else ''}. {self._unique()}"
        conversation.segments += (self._input(self._user(text)),)
        self._exchange(conversation)

    def _edit_answer(self, conversation: Conversation) -> None:
        """Change the text of an earlier answer."""
        places = [
            place
            for place, one in enumerate(conversation.segments)
            if one.is_intact and one.wrote is not None and _text_of(one.wrote.output).strip()
        ]
        if not places:
            return
        place = self._rng.choice(places)
        old = conversation.segments[place]
        text = f"Edited: {self._unique()}"
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

    def _drop_call(self, conversation: Conversation) -> None:
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

    def _change_preamble(self, conversation: Conversation) -> None:
        """Go on with another system text or other tools."""
        if self._rng.random() < 0.5:
            conversation.system = SYSTEMS[conversation.system == SYSTEMS[0]]
        else:
            conversation.tools = TOOLS[conversation.tools == TOOLS[0]]
        self._step(conversation)

    def _write_answer(self, conversation: Conversation) -> None:
        """Put words into the model's mouth."""
        self._answer_tools(conversation)
        conversation.segments += (self._foreign(self._unique()), self._input(self._user()))
        self._exchange(conversation)

    def _ask_beside(self, conversation: Conversation) -> None:
        """A title, or a suggestion of what to say next."""
        program = self.habits.program
        beside = replace(conversation, window=conversation.window)
        if program == "claude-code" and self._rng.random() < 0.5:
            self._answer_tools(beside)
            text = f"[SUGGESTION MODE: {self._unique()}]"
            beside.segments += (self._input(message("user", text)),)
            self._exchange(beside, side="suggestion")
        elif program == "claude-code":
            text = f"Please write a 5-10 word title for: {self._unique()}"
            beside.segments = (self._input(message("user", text)),)
            beside.tools = ()
            self._exchange(beside, side="title")
        elif program == "opencode":
            beside.system, beside.tools = "You are a title generator.", ()
            beside.segments = conversation.segments[:1]
            self._exchange(beside, side="title")

    def _compact(self, conversation: Conversation) -> None:
        """Ask for a summary, and begin anew with it."""
        program = self.habits.program
        kept = conversation.tools, conversation.system
        self._answer_tools(conversation)
        summary = f"{self._unique()} is done, {self._unique()} is left to do."
        wrote, kind = summary, "turn"
        if program == "claude-code":
            asked = "Your task is to create a detailed summary of the conversation so far."
            wrote = f"<analysis>{self._unique()}</analysis>\n<summary>\n{summary}\n</summary>"
        elif program == "codex":
            asked, kind = "Summarize.", "compaction"
            conversation.tools = ()
        elif program != "opencode":
            asked, wrote = f"Summarize. {self._unique()}", self._rng.choice([summary, _COMMON])
            conversation.tools = self._rng.choice([(), conversation.tools])
        else:
            asked, conversation.tools = "Summarize.", ()
            conversation.system = "You are an anchored context summarization assistant."
        conversation.segments += (self._input(message("user", asked)),)
        answer = (message("assistant", wrote),)
        tail = self._tail(conversation)
        self._exchange(conversation, kind=kind, answer=answer)
        conversation.tools, conversation.system = kept
        compaction = conversation.last
        if compaction is None or compaction.output != answer:
            return  # it was a repeat
        compaction.asks_summary = program in ("claude-code", "codex", "opencode")
        if conversation.window is not None:
            conversation.window += 1
        if program == "opencode":
            conversation.segments = (
                self._input(message("user", f"What was done? {self._unique()}")),
                conversation.segments[-1],
                self._input(self._user()),
                *tail,
            )
        else:
            text = f"Another model wrote:\n{summary}\nGo on. {self._unique()}"
            if not compaction.asks_summary:
                text = text.replace(summary, wrote)
                if wrote == summary and self._rng.random() < 0.5:
                    text = wrote
            begun = replace(self._input(message("user", text)), summary=compaction)
            conversation.segments = (begun, *tail)
        self._exchange(conversation, compacted=compaction)

    def _tail(self, conversation: Conversation) -> tuple[Segment, ...]:
        """The last answer and what followed it, which some programs keep beside a summary."""
        segments = conversation.segments[:-1]
        if self._rng.random() < 0.6 or len(segments) < 2 or not segments[-2].is_intact:
            return ()
        return segments[-2:]

    def _start_sub_agent(self, conversation: Conversation) -> None:
        """An answer calls a tool that starts a sub-agent with a prompt of the model's."""
        prompt = self._rng.choice([self._unique(), "Find every use of parse() in the code."])
        answer = (call("task", json.dumps({"prompt": prompt}).encode(), "call_0"),)
        self._answer_tools(conversation)
        self._exchange(conversation, answer=answer)
        starter = conversation.last
        if starter is None or starter.output != answer:
            return
        thread = conversation.thread
        if self.habits.sessions and self.habits.sub_agent_ids:
            self._threads += 1
            thread = (thread[0], f"agent-{self._threads}")
        sub = Conversation(thread, window=None)
        sub.system, sub.tools = "You are a sub-agent.", ("search",)
        sub.segments = (self._input(message("user", "<env>"), message("user", prompt)),)
        if self._rng.random() < 0.5:
            sub.segments = (self._input(message("user", "<env>\n", prompt)),)
        self._conversations.append(sub)
        self._exchange(sub, starter=starter, is_sub_agent=True)

    # ---- requests and answers -----------------------------------------------------------------

    def _exchange(
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
        self._send(
            conversation,
            kind=kind,
            side=side,
            compacted=compacted,
            starter=starter,
            is_sub_agent=is_sub_agent,
        )
        self._receive(conversation, answer)

    def _send(
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
        repeated = self.truth.repeated(asked.digest, thread, marked=marked)
        if repeated is not None or isinstance(placed, RepeatedCall):
            self.log.append(f"repeats {repeated and repeated.number}")
            if (
                repeated is None
                or not isinstance(placed, RepeatedCall)
                or placed.ticket != repeated.ticket
            ):
                raise WrongPlace(f"{placed} in place of a repeat of {repeated}")
            conversation.waiting = repeated
            return
        expected = self.truth.expected(
            conversation.segments,
            preamble,
            thread,
            side=side,
            compacted=compacted,
            starter=starter,
            is_sub_agent=is_sub_agent and bool(thread[1]),
        )
        made = TrueCall(
            number=len(self.truth.calls) + 1,
            context=tuple(segment.key for segment in conversation.segments),
            preamble=preamble,
            thread=thread,
            continues=expected.parent if expected.continues else None,
            side=side,
            ticket=placed.ticket,
            digest=asked.digest,
        )
        self.log.append(f"c{made.number} {_said(expected)} <- {made.context[-3:]}")
        self._check(expected, placed, asked, conversation, made)
        self.truth.calls.append(made)
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

    def _receive(self, conversation: Conversation, answer: Sequence[pb.Item] | None = None) -> None:
        """The answer comes, and the program puts it into its history."""
        asked = conversation.waiting
        if asked is None:
            return
        self._answer(asked, answer)
        self._deliver(asked)
        conversation.waiting, conversation.last = None, asked
        segment = self.habits.echoed(asked, self._rng)
        if segment.wire:
            conversation.segments = (*conversation.asked, segment)

    def _answer(self, asked: TrueCall, answer: Sequence[pb.Item] | None = None) -> None:
        if not asked.is_answered:
            asked.is_answered = True
            asked.output = tuple(self._drawn_answer() if answer is None else answer)
            asked.call_id = f"c{asked.number}"
            self.log.append(f"{asked.call_id} answers {flat(asked.output)}")
            self.tree.answered(asked.ticket, asked.call_id, asked.output)
            self._rebuilt[asked.number] += asked.output

    def _deliver(self, asked: TrueCall) -> None:
        asked.is_delivered = True
        self.tree.delivered(asked.ticket)

    def _check(
        self,
        expected: Expected,
        placed: NewCall,
        asked: GatewayRequest,
        conversation: Conversation,
        made: TrueCall,
    ) -> None:
        """Raises WrongPlace where the tree is wrong."""
        parent = expected.parent.call_id if expected.parent is not None else ""
        self._links[_LINKS[placed.link]] += 1
        base = []
        if not placed.detached:
            above = next(one for one in self.truth.calls if one.call_id == placed.parent)
            base = list(self._rebuilt[above.number])
        self._rebuilt[made.number] = [*base, *placed.items]
        self._actors[made.number] = placed.actor
        true = [message("system", conversation.system)]
        true += [item for segment in conversation.segments for item in segment.true]
        rebuilt = flat(self._rebuilt[made.number])
        if rebuilt != flat(true) and rebuilt != flat(asked.items):
            raise WrongPlace(f"the conversation is {rebuilt} in place of {flat(true)}")
        if placed.link == UNKNOWN:
            if expected.link in (SIDE, CONTINUATION) and expected.parent is None and expected.side:
                raise WrongPlace("a side call is unknown")
            return
        if expected.is_new_actor and expected.detached and not placed.parent:
            # A sub-agent begins, and which of several calls started it cannot be told.
            expected = Expected(CONTINUATION, is_new_actor=True)
            parent = ""
        if placed.link != expected.link:
            raise WrongPlace(f"{_given(placed)} in place of {_said(expected)}")
        if placed.trainable == bool(expected.side) or placed.side_call != expected.side:
            raise WrongPlace(f"{_given(placed)} in place of {_said(expected)}")
        led_to_nothing = placed.detached and not placed.parent
        if placed.parent != parent and not (led_to_nothing and expected.detached):
            raise WrongPlace(f"the parent {placed.parent} in place of {parent}: {placed.fork}")
        if placed.detached != expected.detached:
            raise WrongPlace(f"detached: {placed.detached}")
        reason = placed.fork.reason if placed.fork is not None else None
        if (placed.link == FORK) != (reason is not None) or reason != expected.reason:
            raise WrongPlace(f"{placed.fork} in place of {_said(expected)}")
        self._check_actor(expected, placed, made)

    def _check_actor(self, expected: Expected, placed: NewCall, made: TrueCall) -> None:
        if expected.side:
            return
        before = {actor for number, actor in self._actors.items() if number != made.number}
        if expected.is_new_actor and placed.actor in before:
            raise WrongPlace(f"the actor {placed.actor} is not new")
        if expected.parent is not None and not expected.is_new_actor:
            above = self._actors[expected.parent.number]
            if placed.actor != above and not above.startswith("unknown"):
                raise WrongPlace(f"the actor {placed.actor} in place of {above}")

    # ---- texts and spelling ---------------------------------------------------------------------

    def _unique(self) -> str:
        self._texts += 1
        return f"Something of its own and of nobody else, number {self._texts}."

    def _user(self, text: str = "") -> pb.Item:
        text = text or self._unique()
        if self._rng.random() < 0.3:
            return message("user", text[:5], text[5:])
        return message("user", text)

    def _thread(self) -> tuple[str, str]:
        if not self.habits.sessions:
            return "", ""
        self._threads += 1
        return f"session-{self._threads}", ""

    def _window(self) -> int | None:
        return 0 if self.habits.program == "codex" else None

    def _input(self, *wire: pb.Item, true: Sequence[pb.Item] | None = None) -> Segment:
        recorded = tuple(wire if true is None else true)
        return Segment(("in", str(flat(wire))), tuple(wire), recorded)

    def _foreign(self, text: str) -> Segment:
        items = (message("assistant", text),)
        return Segment(("foreign", text), items, items, is_foreign=True)

    def _answer_tools(self, conversation: Conversation) -> None:
        """Put the outputs of the last answer's calls behind it, or else a user's message."""
        last = conversation.segments[-1]
        calls = [item.function_call for item in last.wire if item.HasField("function_call")]
        if last.wrote is None or not calls:
            if last.wrote is not None or last.is_foreign:
                conversation.segments += (self._input(self._user()),)
            return
        ids = {
            sent.call_id: recorded
            for sent, recorded in zip(calls, self._recorded_ids(last), strict=True)
        }
        wire, true = [], []
        for one in calls:
            text = self._rng.choice(["ok", self._unique()])
            wire.append(output(one.call_id, text))
            true.append(output(ids[one.call_id], text))
        segment = self._input(*wire, true=true)
        # The outputs of two answers may be equal, and yet they are not the same.
        conversation.segments += (replace(segment, key=(*_key(segment.key), "after")),)

    def _recorded_ids(self, segment: Segment) -> list[str]:
        return [
            item.function_call.call_id for item in segment.true if item.HasField("function_call")
        ]

    def _drawn_answer(self) -> list[pb.Item]:
        """What the model writes."""
        rng, items = self._rng, []
        if rng.random() < 0.4:
            items.append(reasoning(self._unique()))
        calls = rng.choice([0, 1, 1, 1, 2, 3])
        if not calls or rng.random() < 0.5:
            text = rng.choice([self._unique(), self._unique(), "ok", "ok ", "Done.", "", _COMMON])
            items.append(message("assistant", text))
        for place in range(calls):
            arguments = rng.choice(
                [
                    json.dumps({"cmd": self._unique(), "n": 1.0, "a": [1, None]}).encode(),
                    b'{"cmd": "ls"}',
                    b"{}",
                    INVALID,
                ]
            )
            items.append(call(rng.choice(["shell", "edit"]), arguments, f"call_{place}"))
        if rng.random() < 0.1:
            items.append(message("assistant", self._unique()))
        return items


_LINKS: dict[int, str] = {
    CONTINUATION: "continuation",
    FORK: "fork",
    SIDE: "side",
    UNKNOWN: "unknown",
}


def _said(expected: Expected) -> str:
    parent = expected.parent.call_id if expected.parent is not None else "nothing"
    return f"{_LINKS[expected.link]} {expected.side}{expected.reason or ''} of {parent}"


def _key(key: Hashable) -> tuple[Hashable, ...]:
    return key if isinstance(key, tuple) else (key,)


def _text_of(items: Sequence[pb.Item]) -> str:
    return "".join(item.message.text for item in items if item.HasField("message"))


@dataclass
class Tally:
    """What many sessions came to."""

    sessions: int = 0
    links: Counter[str] = field(default_factory=Counter)


def run_sessions(seed: str, count: int, steps: int = 14) -> Tally:
    """Run sessions. Raises WrongPlace with the session's log at the first wrong word."""
    tally = Tally()
    for number in range(count):
        session = Session(Random(f"{seed}/{number}"), tally.links)
        try:
            session.run(steps)
        except Exception as error:
            error.add_note(f"session {seed}/{number}: {session.habits}")
            error.add_note("\n".join(session.log))
            raise
        tally.sessions += 1
    return tally


def _given(placed: NewCall) -> str:
    fork = placed.fork and (placed.fork.reason, placed.fork.detail)
    what = f"{_LINKS[placed.link]} {placed.side_call}{fork or ''} of {placed.parent or 'nothing'}"
    return f"{what} by {placed.actor!r}, trained: {placed.trainable}"
