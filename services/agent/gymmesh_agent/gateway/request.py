"""The common form of all dialects' requests and answers. Pure data.

A `GatewayRoute` has the kind of an HTTP request. A dialect reads the body into a `GatewayRequest`
or a `Refusal`, and writes a `GatewayAnswer` back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb

Json = dict[str, Any]

MAX_BODY_BYTES: Final = 64_000_000
"""The maximum length of a request's body that a dialect reads."""

MAX_ITEMS: Final = 20_000
"""The maximum number of items in one request's conversation."""

MAX_TOOLS: Final = 2_000
"""The maximum number of tools in one request."""

MAX_LEVELS: Final = 100
"""How deep a request's tools and parameters may nest objects and arrays."""


class RequestKind(Enum):
    """What a program requests from the gateway.

    GENERATE: an answer of the model.
    COUNT_TOKENS: the number of tokens of a conversation. Nothing is generated.
    LIST_MODELS: the list of models.
    GET_MODEL: one model by its name.
    """

    GENERATE = "generate"
    COUNT_TOKENS = "count_tokens"
    LIST_MODELS = "list_models"
    GET_MODEL = "get_model"


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What a program reports about who calls and why, in headers and metadata. Not to be trusted.

    Attributes:
        program: the first product of the User-Agent header, such as `claude-cli`.
        session: the program's own id of its session or conversation.
        agent: the program's id of the agent that calls; empty for the main agent, or if it reports
            none.
        parent_agent: the program's id of the agent that started this agent.
        request_kind: the program's name for the call's purpose: `turn`, `compaction`, `title` …
        window: how many times the program has replaced its history; None: it does not report that.
        retry_key: an Idempotency-Key; two requests with the same key are one call.
        retries: how many times the program sent this request before; 0: it does not report that.
    """

    program: str = ""
    session: str = ""
    agent: str = ""
    parent_agent: str = ""
    request_kind: str = ""
    window: int | None = None
    retry_key: str = ""
    retries: int = 0


class ReplyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the program wants in the reply in addition to the answer itself.

    Attributes:
        reasoning: whether the program requested the model's reasoning.
        stream_usage: whether a stream reports token counts (optional in Chat Completions).
    """

    reasoning: bool = True
    stream_usage: bool = False


class GatewayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A program's request, in any dialect. It is never changed after it was read.

    Attributes:
        dialect: the dialect's name.
        kind: GENERATE or COUNT_TOKENS.
        items: the whole conversation as Responses items, including leading system text. Ids are as
            the program sent them, including minted ids.
        instructions: the `instructions` of a Responses request; empty in all other dialects.
        tools: the tools in Responses' JSON form; kinds that Responses does not define are
            unchanged.
        params: the requested Responses parameters, without input, instructions, tools and model. A
            parameter that Responses does not define has the program's own name.
        left_out: the names of what the program sent and `params` and `items` omit, in the order of
            reading. Each dialect has a table with the reason for each name.
        tool_names: for tools of a namespace: from the name in `tools` to (namespace, name).
        model: the model's name in the request; may be empty.
        stream: whether to stream the answer.
        reply: the parts that the reply should have.
        hints: the program's headers about itself.
        digest: 16 bytes over all of the above that decides the answer, so not over `stream`,
            `hints`, `reply` and `left_out`. Equal requests have equal digests.
    """

    dialect: str
    kind: RequestKind = RequestKind.GENERATE
    items: tuple[pb.Item, ...] = ()
    instructions: str = ""
    tools: tuple[Json, ...] = ()
    params: Json = {}
    left_out: tuple[str, ...] = ()
    tool_names: Mapping[str, tuple[str, str]] = {}
    model: str = ""
    stream: bool = False
    reply: ReplyOptions = ReplyOptions()
    hints: Hints = Hints()
    digest: bytes = b""


class GatewayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer to send to the program.

    Attributes:
        tag: the rollout's tag in minted ids, see minted.py.
        call_id: the recorded call's id.
        response: the answer as recorded: output, status, incomplete_details, usage.
        created: when it was created, in seconds since 1970.
    """

    tag: str
    call_id: str
    response: pb.Response
    created: int


class RefusalKind(Enum):
    """Why a request gets no answer. The kind decides what the program does next.

    INVALID: the request can't be read, or requests something that the gateway does not support.
    TOO_LARGE: the request exceeds a limit.
    UNAUTHORIZED: the key gives no access to a rollout.
    NOT_FOUND: nothing is served at the path, or there is no such model.
    STOP: the rollout is over, cancelled or out of budget; the program must end at once.
    CONTEXT_LENGTH: the conversation no longer fits the model's context.
    AGAIN: the request failed this time; the same request may succeed later.
    """

    INVALID = "invalid"
    TOO_LARGE = "too_large"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    STOP = "stop"
    CONTEXT_LENGTH = "context_length"
    AGAIN = "again"


class Refusal(msgspec.Struct, frozen=True):
    """Why a request gets no answer.

    Attributes:
        kind: what the program should do.
        message: one sentence for people, without secrets and without data of other rollouts.
        status: an HTTP status in place of the dialect's own, for a program that ends only at this
            status; 0: the dialect's status.
    """

    kind: RefusalKind
    message: str
    status: int = 0


class HttpReply(msgspec.Struct, frozen=True):
    """A whole HTTP answer.

    Attributes:
        status: the HTTP status.
        body: JSON.
        headers: the headers in addition to Content-Type, which is `application/json`.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
