"""Holds what the tree says of a request against the truth."""

from __future__ import annotations

from collections import Counter

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree import NewCall
from tests.capture_law.compare import flat
from tests.capture_law.conversation import Conversation
from tests.capture_law.truth import (
    CONTINUATION,
    FORK,
    SIDE,
    UNKNOWN,
    Expected,
    TrueCall,
    Truth,
)
from tests.unit.gateway_tree.wire import message

_LINKS: dict[int, str] = {
    CONTINUATION: "continuation",
    FORK: "fork",
    SIDE: "side",
    UNKNOWN: "unknown",
}


class WrongPlace(AssertionError):
    """The tree said something that is not so."""


class PlacementChecks:
    """The calls of a session as the tree placed them.

    Args:
        links: counts the links that the tree gave.
    """

    def __init__(self, truth: Truth, links: Counter[str]) -> None:
        self._truth = truth
        self._links = links
        self._actors: dict[int, str] = {}
        self._rebuilt: dict[int, list[pb.Item]] = {}

    def answered(self, call: TrueCall) -> None:
        """A call was answered."""
        self._rebuilt[call.number] += call.output

    def check(
        self,
        expected: Expected,
        placed: NewCall,
        asked: GatewayRequest,
        conversation: Conversation,
        made: TrueCall,
    ) -> None:
        """Raises WrongPlace where the tree is wrong."""
        self._links[_LINKS[placed.link]] += 1
        self._check_conversation(placed, asked, conversation, made)
        self._actors[made.number] = placed.actor
        if placed.link == UNKNOWN:
            if expected.link in (SIDE, CONTINUATION) and expected.parent is None and expected.side:
                raise WrongPlace("the link of a side call is UNKNOWN")
            return
        if expected.is_new_actor and expected.detached and not placed.parent:
            # A sub-agent begins, and which of several calls started it cannot be told.
            expected = Expected(CONTINUATION, is_new_actor=True)
        parent = expected.parent.call_id if expected.parent is not None else ""
        if placed.link != expected.link:
            raise WrongPlace(f"{_given(placed)}, expected {said(expected)}")
        if placed.trainable == bool(expected.side) or placed.side_call != expected.side:
            raise WrongPlace(f"{_given(placed)}, expected {said(expected)}")
        led_to_nothing = placed.detached and not placed.parent
        if placed.parent != parent and not (led_to_nothing and expected.detached):
            raise WrongPlace(
                f"the parent is {placed.parent}, expected {parent}. Fork: {placed.fork}"
            )
        if placed.detached != expected.detached:
            raise WrongPlace(f"detached is {placed.detached}, expected {expected.detached}")
        reason = placed.fork.reason if placed.fork is not None else None
        if (placed.link == FORK) != (reason is not None) or reason != expected.reason:
            raise WrongPlace(f"the fork is {placed.fork}, expected {said(expected)}")
        self._check_actor(expected, placed, made)

    def _check_conversation(
        self,
        placed: NewCall,
        asked: GatewayRequest,
        conversation: Conversation,
        made: TrueCall,
    ) -> None:
        base = []
        if not placed.detached:
            above = next(one for one in self._truth.calls if one.call_id == placed.parent)
            base = list(self._rebuilt[above.number])
        self._rebuilt[made.number] = [*base, *placed.items]
        true = [message("system", conversation.system)]
        true += [item for segment in conversation.segments for item in segment.true]
        rebuilt = flat(self._rebuilt[made.number])
        if rebuilt != flat(true) and rebuilt != flat(asked.items):
            raise WrongPlace(f"the conversation is {rebuilt}, expected {flat(true)}")

    def _check_actor(self, expected: Expected, placed: NewCall, made: TrueCall) -> None:
        if expected.side:
            return
        before = {actor for number, actor in self._actors.items() if number != made.number}
        if expected.is_new_actor and placed.actor in before:
            raise WrongPlace(f"the actor is {placed.actor}, expected a new actor")
        if expected.parent is not None and not expected.is_new_actor:
            above = self._actors[expected.parent.number]
            if placed.actor != above and not above.startswith("unknown"):
                raise WrongPlace(f"the actor is {placed.actor}, expected {above}")


def said(expected: Expected) -> str:
    """What is expected, for people."""
    parent = expected.parent.call_id if expected.parent is not None else "nothing"
    return f"{_LINKS[expected.link]} {expected.side}{expected.reason or ''} of {parent}"


def _given(placed: NewCall) -> str:
    fork = placed.fork and (placed.fork.reason, placed.fork.detail)
    what = f"{_LINKS[placed.link]} {placed.side_call}{fork or ''} of {placed.parent or 'nothing'}"
    return f"{what} by {placed.actor!r}, trained: {placed.trainable}"
