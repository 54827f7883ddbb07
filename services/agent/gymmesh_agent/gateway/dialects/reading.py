"""The common reading code of all dialects: limits, places in messages, and the request's digest.
Pure.

A reader raises `UnreadableRequest`, which `total` turns into a Refusal. So the gateway answers any
invalid input with one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from hashlib import blake2b
from typing import Any, Final, ParamSpec

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.request import (
    MAX_BODY_BYTES,
    MAX_ITEMS,
    MAX_LEVELS,
    MAX_TOOLS,
    GatewayRequest,
    Hints,
    Json,
    Refusal,
    RefusalKind,
    ReplyOptions,
    RequestKind,
)
from gymmesh_responses import CodecError, dumps_clean, loads

_P = ParamSpec("_P")
_SHOWN: Final = 60
_LONGEST_PROBLEM: Final = 300
_LONGEST_NAME: Final = 500

# Parameters of the Responses API that no other dialect has: one of that name in another dialect's
# body would be read as what it is not.
_RESPONSES_ONLY: Final = frozenset(
    (
        "background",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "moderation",
        "previous_response_id",
        "prompt",
        "text",
        "truncation",
    )
)
_READ_APART: Final = frozenset(("model", "stream", "tools"))


class UnreadableRequest(Exception):
    """What a program sent can't be read; the text is one sentence."""

    def __init__(self, message: str, kind: RefusalKind = RefusalKind.INVALID) -> None:
        self.kind = kind
        super().__init__(message)


def total(read: Callable[_P, GatewayRequest]) -> Callable[_P, GatewayRequest | Refusal]:
    """A reader that returns a Refusal for what it can't read."""

    @wraps(read)
    def without_errors(*args: _P.args, **named: _P.kwargs) -> GatewayRequest | Refusal:
        try:
            return read(*args, **named)
        except UnreadableRequest as error:
            return _refusal(error.kind, error)
        except CodecError as error:
            return _refusal(RefusalKind.INVALID, error)

    return without_errors


def _refusal(kind: RefusalKind, error: Exception) -> Refusal:
    problem = str(error)
    if len(problem) > _LONGEST_PROBLEM:  # an error names keys, which may be long
        problem = problem[:_LONGEST_PROBLEM] + "…"
    return Refusal(kind, f"The request can't be read: {problem}.")


def body_of(raw: bytes) -> Json:
    """The body, which must be a JSON object within the size limit.

    Raises UnreadableRequest or CodecError.
    """
    if len(raw) > MAX_BODY_BYTES:
        raise UnreadableRequest(
            f"the request's body has {len(raw)} bytes, more than {MAX_BODY_BYTES}",
            RefusalKind.TOO_LARGE,
        )
    return an_object(loads(raw), "the body")


def an_object(value: object, place: str) -> Json:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise UnreadableRequest(f"{place} must be an object")
    return value


def a_list(value: object, place: str, most: int = MAX_ITEMS) -> list[Any]:
    """The value, which must be a list of at most this many elements."""
    if not isinstance(value, list):
        raise UnreadableRequest(f"{place} must be a list")
    if len(value) > most:
        raise UnreadableRequest(
            f"{place} has {len(value)} elements, more than {most}", RefusalKind.TOO_LARGE
        )
    return value


def a_text(value: object, place: str) -> str:
    """The value, which must be text."""
    if not isinstance(value, str):
        raise UnreadableRequest(f"{place} must be text")
    return value


def tools_in(body: Mapping[str, Any], key: str = "tools") -> list[Any]:
    """The list of tools under the key; empty if it is absent or null."""
    value = body.get(key)
    return [] if value is None else a_list(value, key, MAX_TOOLS)


def shown(value: object) -> str:
    """A name from a request, made printable and short for a message."""
    text = value if isinstance(value, str) else type(value).__name__
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


class Draft:
    """A request that is being read.

    Attributes:
        items: the conversation in Responses' JSON form.
        tools: the tools in Responses' JSON form.
        params: the parameters with Responses' names.
        left_out: the names of what is omitted on purpose, each once.
    """

    def __init__(self, reasons: Mapping[str, str], seen: SeenRequests) -> None:
        """reasons: for each name that may be omitted, why that does no harm. seen: what the same
        rollout's programs sent before.
        """
        self._reasons = reasons
        self._seen = seen
        self.items: list[Json] = []
        self.tools: list[Json] = []
        self.params: Json = {}
        self.left_out: list[str] = []

    def leave_out(self, name: str) -> None:
        """Note that the value with this name is omitted."""
        if name not in self.left_out:
            self.left_out.append(name)

    def carry(
        self, body: Mapping[str, Any], read: frozenset[str], *, responses: bool = False
    ) -> None:
        """Keep every parameter that is not in `read` under its own name.

        Null values and the parameters in the dialect's table are omitted. responses: whether the
        body is a body of the Responses API.
        """
        for name, value in body.items():
            if value is None or name in read:
                continue
            if name in self._reasons:
                self.leave_out(name)
            elif responses:
                self.params[name] = value
            else:
                self.keep(name, value)

    def keep(self, name: str, value: object) -> None:
        """Keep a parameter of another dialect that Responses has no name for.

        Raises UnreadableRequest if the name means something else in Responses.
        """
        if name in _RESPONSES_ONLY or name in _READ_APART:
            raise UnreadableRequest(f"'{name}' is not a parameter of this API")
        self.params[name] = value

    def request(
        self,
        route: GatewayRoute,
        *,
        model: object,
        stream: object,
        hints: Hints,
        reply: ReplyOptions,
        instructions: str = "",
        tool_names: Mapping[str, tuple[str, str]] | None = None,
    ) -> GatewayRequest:
        """The request. Raises UnreadableRequest or CodecError."""
        if len(self.items) > MAX_ITEMS:
            raise UnreadableRequest(
                f"the request's conversation has {len(self.items)} items, more than {MAX_ITEMS}",
                RefusalKind.TOO_LARGE,
            )
        if stream is not None and not isinstance(stream, bool):
            raise UnreadableRequest("'stream' must be true or false")
        named = _model_name(route.model or model)
        items = self._seen.items(self.items)
        tools = self._seen.tools(self.tools, _check_levels)
        _check_levels(self.params)
        return GatewayRequest(
            dialect=route.dialect,
            kind=route.kind,
            items=tuple(one.item for one in items),
            instructions=instructions,
            tools=tools.tools,
            params=self.params,
            left_out=tuple(self.left_out),
            tool_names=tool_names or {},
            model=named,
            stream=route.kind is RequestKind.GENERATE and (route.stream or stream is True),
            reply=reply,
            hints=hints,
            digest=_digest(
                dumps_clean([route.dialect, route.kind.value, named, instructions]),
                tools.digest,
                dumps_clean(self.params),
                b"".join([one.digest for one in items]),
            ),
        )


def _model_name(value: object) -> str:
    name = "" if value is None else a_text(value, "model")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise UnreadableRequest(
            f"'model' must have at most {_LONGEST_NAME} characters, all of them printable"
        )
    return name


def _digest(*pieces: bytes) -> bytes:
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little"))  # no two requests run together
        digest.update(piece)
    return digest.digest()


def _check_levels(asked: object) -> None:
    # The bound is that of an array of both.
    if nests_deeper(asked, MAX_LEVELS - 1):
        raise UnreadableRequest(
            f"the request's tools or parameters nest deeper than {MAX_LEVELS} levels"
        )


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether objects and arrays nest deeper than this; counted without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            member
            for container in level
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, dict | list)
        ]
    return bool(level)
