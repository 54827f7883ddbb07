"""The calls of one rollout as a tree: where each request of the program belongs. Pure.

`place` decides in this order; docs/ideas/capture.md has the reasons:
    1. the request repeats a call whose answer the program abandoned, or is marked as a retry
    2. a line of the table of side calls matches
    3. the request begins with a recorded conversation: it continues it, or departs from it
    4. the request has nothing that is recorded: a compaction, a rewritten beginning, a sub-agent
       or a new conversation
    5. otherwise it is UNKNOWN
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.actors import Actors
from gymmesh_agent.gateway.tree.calls import CapturedCall
from gymmesh_agent.gateway.tree.compactions import Compactions
from gymmesh_agent.gateway.tree.normal_form import text_of_arguments
from gymmesh_agent.gateway.tree.placement import NewCall, RepeatedCall
from gymmesh_agent.gateway.tree.placing import Placing, TreeState
from gymmesh_agent.gateway.tree.reading import ConversationReader, KnownCalls
from gymmesh_agent.gateway.tree.repeats import RepeatedRequests
from gymmesh_agent.gateway.tree.side_calls import SideCallRule, habits_of
from gymmesh_agent.gateway.tree.written import WrittenAnswers


class CallTree:
    """All calls that a program made in one attempt of a rollout.

    Args:
        tag: the tag of the attempt's minted ids, see gateway/minted.py.
        program: the name of a known program; empty: recognise the program by its User-Agent, if
            possible.
        side_calls: the agent's own lines, checked before those of the table.

    A call is placed, then answered or failed. Each request ends: its answer was delivered
    completely, or abandoned because the program disconnected. The tree has the answers, the new
    parts of each call's request, and digests. It does not have the requests.
    """

    def __init__(
        self, tag: str, program: str = "", side_calls: Sequence[SideCallRule] = ()
    ) -> None:
        self._program = program
        self._side_calls = tuple(side_calls)
        self._tickets = count(1)
        self._calls: dict[int, CapturedCall] = {}
        self._by_context: dict[bytes, list[CapturedCall]] = {}
        self._by_id: dict[str, CapturedCall] = {}
        self._reader = ConversationReader(KnownCalls(self._by_context, self._by_id, tag))
        self._repeats = RepeatedRequests()
        answers = WrittenAnswers()
        self._state = TreeState(self._by_context, Actors(), answers, Compactions(answers), set())

    def place(self, request: GatewayRequest) -> NewCall | RepeatedCall:
        """Where a request of kind GENERATE belongs. A new call is in the tree from now on."""
        earlier = self._repeats.earlier(request)
        if earlier is not None:
            earlier.waiting += 1
            return RepeatedCall(earlier.ticket)
        read = self._reader.read(request)
        hints = request.hints
        call = CapturedCall(
            ticket=next(self._tickets),
            thread=(hints.session, hints.agent),
            lead=read.lead,
            offer=read.offer,
            context=read.context,
            window=hints.window,
            waiting=1,
        )
        habits = habits_of(self._program, hints.program, self._side_calls)
        placed = Placing(self._state, habits, request, read, call).decide()
        call.asked = placed.items
        self._calls[call.ticket] = call
        self._by_context.setdefault(read.context, []).append(call)
        self._repeats.add(request, call)
        if call.parent is not None:
            call.parent.continued += 1
        return placed

    def answered(self, ticket: int, call_id: str, output: Iterable[pb.Item]) -> None:
        """A call was answered. Call this before any part of the answer is sent.

        Args:
            call_id: the recorded call's id, which minted ids name.
            output: the answer's items as recorded; they must not change any more.
        """
        call = self._calls[ticket]
        form = call.answer(call_id, output)
        self._by_id[call_id] = call
        self._state.answers.add(call, form)
        self._state.compactions.add(call, form)
        for item in call.output:
            if item.WhichOneof("kind") == "function_call":
                texts = text_of_arguments(item.function_call.arguments)
                self._state.actors.add_prompts(call, texts)

    def delivered(self, ticket: int) -> None:
        """A request ended, and the program has the whole answer. The same request then asks for
        another answer.
        """
        call = self._calls[ticket]
        call.delivered = True
        call.waiting -= 1

    def given_up(self, ticket: int) -> None:
        """A request ended without the whole answer. The same request is then a retry. Has no
        effect if the call failed.
        """
        call = self._calls.get(ticket)
        if call is not None:
            call.waiting -= 1

    def failed(self, ticket: int) -> None:
        """A call got no answer. The same request is then a new call."""
        call = self._calls.pop(ticket)
        self._by_context[call.context].remove(call)
        self._repeats.remove(call)
        if call.added:
            self._state.actors.remove(call)
        if call.parent is not None:
            call.parent.continued -= 1
