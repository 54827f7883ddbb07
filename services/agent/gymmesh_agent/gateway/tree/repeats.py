"""Decides which requests repeat an earlier one. Pure."""

from __future__ import annotations

from typing import TypeAlias

from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.calls import CapturedCall

_RepeatKey: TypeAlias = tuple[str, str, bytes, str]


class RepeatedRequests:
    """The calls of each request.

    A program repeats a request if it did not get the whole answer. Most programs don't mark the
    repeat, but they have closed the first connection by then. So an equal request gets the answer
    of an earlier request that nobody waits for and that was not delivered. If the earlier request
    still waits, the equal request asks for another answer: sub-agents that run side by side may
    begin with equal prompts. A request that is marked as a retry always gets the earlier answer.
    Requests are equal if their digests, sessions and agents are equal.
    """

    def __init__(self) -> None:
        self._calls: dict[_RepeatKey, list[CapturedCall]] = {}

    def earlier(self, request: GatewayRequest) -> CapturedCall | None:
        """The call that a request repeats; None: it is a new call."""
        hints = request.hints
        if hints.retry_key and (marked := self._calls.get(_by_retry_key(request))):
            return marked[-1]
        calls = self._calls.get(_by_digest(request), ())
        under_way = [call for call in calls if not call.delivered]
        given_up = [call for call in under_way if not call.waiting]
        if given_up:
            return given_up[-1]
        if hints.retries and calls:
            return (under_way or calls)[-1]
        return None

    def add(self, request: GatewayRequest, call: CapturedCall) -> None:
        """A request is a new call."""
        self._calls.setdefault(_by_digest(request), []).append(call)
        if request.hints.retry_key:
            self._calls.setdefault(_by_retry_key(request), []).append(call)

    def remove(self, call: CapturedCall) -> None:
        """A call failed, so no request repeats it."""
        for calls in self._calls.values():
            if call in calls:
                calls.remove(call)


def _by_digest(request: GatewayRequest) -> _RepeatKey:
    return request.hints.session, request.hints.agent, request.digest, ""


def _by_retry_key(request: GatewayRequest) -> _RepeatKey:
    return "", "", request.digest, request.hints.retry_key
