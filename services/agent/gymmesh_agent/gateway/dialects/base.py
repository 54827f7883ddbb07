"""The interface of a dialect: parses a request from bytes, and writes an answer to bytes. Pure.

A dialect never raises for a program's input: it returns a Refusal. It never changes its arguments,
and uses no clock, socket or rollout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    HttpReply,
    Refusal,
    RequestKind,
)


class GatewayRoute(msgspec.Struct, frozen=True):
    """What an HTTP request asks for, by its method and path.

    Attributes:
        dialect: the name of the dialect, a key of `DIALECTS`.
        kind: the kind of request.
        model: the model that the path names; empty if it names none.
        stream: whether the path requests a stream.
    """

    dialect: str
    kind: RequestKind
    model: str = ""
    stream: bool = False


class Dialect(Protocol):
    """One API that programs speak.

    Attributes:
        name: the dialect's name.
        keep_alive: bytes that may be sent in a stream before, between and after events. Every
            tested program ignores them.
    """

    name: str
    keep_alive: bytes

    def read(
        self, route: GatewayRoute, headers: Mapping[str, str], body: bytes, seen: SeenRequests
    ) -> GatewayRequest | Refusal:
        """Read a request of kind GENERATE or COUNT_TOKENS. Raises nothing.

        headers: their names in lower case. seen: what the same rollout's programs sent before; it
        changes only the cost of reading.
        """
        ...

    def write(self, request: GatewayRequest, answer: GatewayAnswer) -> bytes:
        """The body of a whole answer, as JSON.

        If the dialect can't represent the kind of an output item, the item is omitted; the recorded
        answer keeps it.
        """
        ...

    def write_stream(self, request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
        """The server-sent events of the same answer, each complete, with texts in pieces of
        limited length.
        """
        ...

    def write_models(self, names: Sequence[str], created: int) -> bytes:
        """The body that lists these models; `created`: seconds since 1970."""
        ...

    def write_model(self, name: str, created: int) -> bytes:
        """The body that describes one model."""
        ...

    def write_token_count(self, tokens: int) -> bytes:
        """The body that contains the number of tokens of a conversation."""
        ...

    def write_refusal(self, refusal: Refusal) -> HttpReply:
        """The whole answer to a request that is refused."""
        ...

    def write_stream_refusal(self, refusal: Refusal) -> bytes:
        """The last event of a stream that fails after it began.

        Not every program ends after such an event: Claude Code then repeats the request without a
        stream, and Gemini CLI repeats it three times with a stream. `write_refusal` answers these
        requests.
        """
        ...
