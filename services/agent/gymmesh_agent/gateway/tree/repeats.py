"""Which requests repeat an earlier one. Pure."""

from __future__ import annotations

from typing import TypeAlias

from gymmesh_agent.gateway.request import GatewayRequest
from gymmesh_agent.gateway.tree.calls import CapturedCall

_RepeatKey: TypeAlias = tuple[str, str, bytes, str]


class RepeatedRequests:
    """The latest call of each request.

    A program repeats a request whose answer it did not get whole, mostly without a mark. So an
    equal request gets the answer of the earlier one until that is delivered; then only if it is
    marked as a retry. Requests are equal when their digests, sessions and agents are.
    """

    def __init__(self) -> None:
        self._calls: dict[_RepeatKey, CapturedCall] = {}

    def earlier(self, request: GatewayRequest) -> CapturedCall | None:
        """The call that a request repeats; None: it is a call of its own."""
        hints = request.hints
        if hints.retry_key:
            marked = self._calls.get(_by_retry_key(request))
            if marked is not None:
                return marked
        call = self._calls.get(_by_digest(request))
        if call is None or (call.delivered and not hints.retries):
            return None
        return call

    def add(self, request: GatewayRequest, call: CapturedCall) -> None:
        """A request is a call of its own."""
        self._calls[_by_digest(request)] = call
        if request.hints.retry_key:
            self._calls[_by_retry_key(request)] = call

    def remove(self, call: CapturedCall) -> None:
        """A call failed: nothing repeats it."""
        for key in [key for key, one in self._calls.items() if one is call]:
            del self._calls[key]


def _by_digest(request: GatewayRequest) -> _RepeatKey:
    return request.hints.session, request.hints.agent, request.digest, ""


def _by_retry_key(request: GatewayRequest) -> _RepeatKey:
    return "", "", request.digest, request.hints.retry_key
