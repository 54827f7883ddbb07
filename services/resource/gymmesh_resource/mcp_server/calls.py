"""What agents called over MCP, for the verdict on their session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2

_FEW = 64


class Calls:
    """The calls of each open session in the order in which they ended, as Responses items.

    `is_open`: whether a session id is that of an open session; others are forgotten.
    """

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open = is_open
        self._items: dict[str, list[responses_pb2.Item]] = {}
        self._sweep_at = _FEW

    def add(
        self, request: resource_pb2.CallToolRequest, reply: resource_pb2.CallToolResponse
    ) -> None:
        """Keep a call with its answer."""
        if request.session_id not in self._items and len(self._items) >= self._sweep_at:
            self._sweep()
        call = responses_pb2.FunctionCall(
            call_id=request.call_id, name=request.name, arguments=request.arguments
        )
        output = responses_pb2.FunctionCallOutput(call_id=request.call_id)
        if reply.WhichOneof("output") == "parts":
            output.parts.CopyFrom(reply.parts)
        else:
            output.text = reply.text
        self._items.setdefault(request.session_id, []).extend(
            (
                responses_pb2.Item(function_call=call),
                responses_pb2.Item(function_call_output=output),
            )
        )

    def items(self, session_id: str) -> Sequence[responses_pb2.Item]:
        """Those of a session so far."""
        return self._items.get(session_id, ())

    def _sweep(self) -> None:
        """Forget closed sessions; seldom enough to cost little for each call."""
        self._items = {key: items for key, items in self._items.items() if self._is_open(key)}
        self._sweep_at = max(_FEW, 2 * len(self._items))
