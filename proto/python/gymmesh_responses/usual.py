"""Answers as endpoints write them nearly always, read in one pass; any other is left to `response`.

JSON goes straight into structs that have the keys of these answers and no others, and from there
into the message: no dict is made, asked what it holds, and taken apart. An answer that has another
key or another type anywhere is not read at all, so that nothing of it can be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.jsonio import MAX_DEPTH, store


class _Read(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What is read at once, and once put into a message forgotten."""


class _Usage(_Read):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: Any = UNSET
    output_tokens_details: Any = UNSET

    def put(self, usage: pb.Usage) -> None:
        usage.input_tokens = self.input_tokens
        usage.output_tokens = self.output_tokens
        usage.total_tokens = self.total_tokens
        rest = {}
        given = self.input_tokens_details
        if given is not UNSET:
            if type(given) is dict and len(given) == 1 and type(given.get("cached_tokens")) is int:
                usage.cached_tokens = given["cached_tokens"]
            else:
                rest["input_tokens_details"] = given
        made = self.output_tokens_details
        if made is not UNSET:
            if type(made) is dict and len(made) == 1 and type(made.get("reasoning_tokens")) is int:
                usage.reasoning_tokens = made["reasoning_tokens"]
            else:
                rest["output_tokens_details"] = made
        if rest:
            usage.overlay_json = store(rest)


class _Text(_Read):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: Any = UNSET

    def put(self, part: pb.OutputText) -> None:
        part.text = self.text
        rest: dict[str, Any] = {}
        if self.annotations:
            rest["annotations"] = self.annotations
        else:
            part.annotations_empty = True
        logprobs = self.logprobs
        if logprobs is not UNSET:
            if logprobs == []:
                part.logprobs_empty = True
            else:
                rest["logprobs"] = logprobs
        if rest:
            part.overlay_json = store(rest)


class _Message(_Read, tag_field="type", tag="message"):
    id: str
    role: str
    status: str
    content: list[_Text]

    def put(self, item: pb.Item) -> None:
        message = item.message
        message.id = self.id
        message.role = self.role
        message.status = self.status
        content = self.content
        if not content:
            message.parts.SetInParent()
            return
        parts = message.parts.parts
        for text in content:
            text.put(parts.add().output_text)


class _Call(_Read, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: str

    def put(self, item: pb.Item) -> None:
        call = item.function_call
        call.id = self.id
        call.call_id = self.call_id
        call.name = self.name
        call.arguments = self.arguments.encode()
        call.status = self.status


class _Summary(_Read):
    type: Literal["summary_text"]
    text: str


class _Thought(_Read):
    type: Literal["reasoning_text"]
    text: str


class _Reasoning(_Read, tag_field="type", tag="reasoning"):
    id: str
    summary: list[_Summary]
    content: list[_Thought] | UnsetType | None = UNSET
    encrypted_content: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET

    def put(self, item: pb.Item) -> None:
        reasoning = item.reasoning
        reasoning.id = self.id
        reasoning.summary.SetInParent()
        reasoning.summary.texts.extend([part.text for part in self.summary])
        nulls: dict[str, None] = {}
        if self.content is None:
            nulls["content"] = None
        elif self.content is not UNSET:
            reasoning.content.SetInParent()
            reasoning.content.texts.extend([part.text for part in self.content])
        if self.encrypted_content is None:
            nulls["encrypted_content"] = None
        elif self.encrypted_content is not UNSET:
            reasoning.encrypted_content = self.encrypted_content
        if self.status is None:
            nulls["status"] = None
        elif self.status is not UNSET:
            reasoning.status = self.status
        if nulls:
            reasoning.overlay_json = store(nulls)


class _Answer(_Read):
    """A completed response. What has a field in the message comes first, the overlay's keys after.

    Those are what OpenAI, vLLM and SGLang write.
    """

    id: str | UnsetType
    model: str | UnsetType
    status: Literal["completed"] | UnsetType
    output: list[_Message | _Call | _Reasoning] | UnsetType
    usage: _Usage | UnsetType | None = UNSET
    error: UnsetType | None = UNSET
    incomplete_details: UnsetType | None = UNSET
    object: Any = UNSET
    created_at: Any = UNSET
    completed_at: Any = UNSET
    background: Any = UNSET
    billing: Any = UNSET
    content_filters: Any = UNSET
    conversation: Any = UNSET
    frequency_penalty: Any = UNSET
    input_messages: Any = UNSET
    instructions: Any = UNSET
    kv_transfer_params: Any = UNSET
    max_output_tokens: Any = UNSET
    max_tool_calls: Any = UNSET
    metadata: Any = UNSET
    output_messages: Any = UNSET
    parallel_tool_calls: Any = UNSET
    presence_penalty: Any = UNSET
    previous_response_id: Any = UNSET
    prompt: Any = UNSET
    prompt_cache_key: Any = UNSET
    prompt_cache_retention: Any = UNSET
    reasoning: Any = UNSET
    safety_identifier: Any = UNSET
    service_tier: Any = UNSET
    store: Any = UNSET
    temperature: Any = UNSET
    text: Any = UNSET
    tool_choice: Any = UNSET
    tools: Any = UNSET
    top_logprobs: Any = UNSET
    top_p: Any = UNSET
    truncation: Any = UNSET
    user: Any = UNSET


# Fields are unset once they are in the message, which no type of theirs could say.
_READ: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(_Answer).decode
_WRITTEN: Final = msgspec.json.Encoder().encode
# Not as these structs have it, a count beyond the range of int64, or nested too deeply.
_UNUSUAL: Final = (msgspec.DecodeError, ValueError, RecursionError)


def fill_usual(response: pb.Response, answer: bytes) -> tuple[int, int] | None:
    """Reads the JSON of a usual, completed response into a new message, as `fill_response` would.

    Gives its input and output tokens, 0 where it does not say; None for any other response, good
    or bad, and the message is of no use then.
    """
    try:
        read = _READ(answer)
        counts = _put(read, response)
        rest = _WRITTEN(read)
    except _UNUSUAL:
        return None
    if rest != b"{}":
        if len(rest) > 2 * MAX_DEPTH and rest.count(b"[") + rest.count(b"{") > MAX_DEPTH:
            return None  # it may be nested too deeply
        response.overlay_json = rest
    return counts


def _put(read: Any, response: pb.Response) -> tuple[int, int]:
    """Moves what has a field into the message; gives the input and output tokens."""
    response.id = read.id
    response.model = read.model
    response.status = read.status
    output = response.output
    for item in read.output:
        item.put(output.add())
    read.id = read.model = read.status = read.output = UNSET
    usage = read.usage
    if type(usage) is not _Usage:
        return 0, 0
    usage.put(response.usage)
    read.usage = UNSET
    return usage.input_tokens, usage.output_tokens
