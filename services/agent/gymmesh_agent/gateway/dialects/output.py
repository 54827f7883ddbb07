"""A recorded answer as every dialect writes it: its items with minted ids. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_agent.gateway.dialects.reading import nests_deeper
from gymmesh_agent.gateway.minted import Minted
from gymmesh_agent.gateway.request import MAX_LEVELS, GatewayAnswer, GatewayRequest, Json
from gymmesh_responses import (
    CodecError,
    Finish,
    bytes_to_text,
    dumps,
    finish_of,
    item_to_dict,
    loads,
)

INVALID_ARGUMENTS: Final = "invalid_arguments"
"""The key under which arguments that are not a JSON object are sent where one is required."""


class OutputMessage(msgspec.Struct, frozen=True):
    """A message of the answer.

    Attributes:
        minted: names the item.
        parts: its content in Responses' JSON form.
        status: `completed` or `incomplete`.
    """

    minted: Minted
    parts: list[Json]
    status: str

    @property
    def text(self) -> str:
        """Its texts, joined with nothing between."""
        return "".join(part["text"] for part in self.parts if part["type"] == "output_text")

    @property
    def refusal(self) -> str:
        """Its refusals, joined with nothing between."""
        return "".join(part["refusal"] for part in self.parts if part["type"] == "refusal")


class OutputCall(msgspec.Struct, frozen=True):
    """A function call of the answer.

    Attributes:
        minted: names the item.
        name: the tool's name as the model wrote it.
        arguments: the text that the model wrote.
        status: `completed` or `incomplete`.
    """

    minted: Minted
    name: str
    arguments: str
    status: str

    @property
    def arguments_object(self) -> Json:
        """The arguments for an API that requires an object.

        An object that the model wrote is returned as it is, and nothing becomes `{}`. Anything else
        (text that is not JSON, another JSON value, an object nested deeper than 100 levels) becomes
        `{"invalid_arguments": "<what the model wrote>"}`. The recorded item keeps what the model
        wrote.
        """
        if not self.arguments.strip():
            return {}
        try:
            value = loads(self.arguments)
            if isinstance(value, dict) and not nests_deeper(value, MAX_LEVELS):
                return value
        except CodecError:
            pass
        return {INVALID_ARGUMENTS: self.arguments}

    @property
    def arguments_text(self) -> str:
        """`arguments_object` as JSON text: exactly what the model wrote, if it wrote an object."""
        value = self.arguments_object
        if value and INVALID_ARGUMENTS not in value:
            return self.arguments
        return dumps(value).decode()


class OutputReasoning(msgspec.Struct, frozen=True):
    """Reasoning of the answer.

    Attributes:
        minted: names the item.
        summary: the texts of its summary.
        content: the texts of the reasoning itself.
    """

    minted: Minted
    summary: list[str]
    content: list[str]

    @property
    def text(self) -> str:
        """The text to show: the reasoning, or without it the summary; texts are separated by a
        blank line.
        """
        return "\n\n".join(self.content or self.summary)


class OutputOpaque(msgspec.Struct, frozen=True):
    """An item of a kind that only the Responses API may know.

    Attributes:
        minted: names the item.
        document: the item as JSON.
    """

    minted: Minted
    document: Json


OutputItem = OutputMessage | OutputCall | OutputReasoning | OutputOpaque


def output_of(answer: GatewayAnswer) -> list[OutputItem]:
    """The answer's items in order."""
    return [
        _item(item, Minted(answer.tag, answer.call_id, index))
        for index, item in enumerate(answer.response.output)
    ]


def response_id(answer: GatewayAnswer, prefix: str) -> str:
    """The id of the whole answer, which names its first item."""
    return Minted(answer.tag, answer.call_id, 0).id(prefix)


def model_of(request: GatewayRequest, answer: GatewayAnswer) -> str:
    """The model's name in the reply: the name that the program requested."""
    return request.model or answer.response.model


def finish_in(answer: GatewayAnswer) -> Finish:
    """How the answer ended: DONE, FILTERED, or LENGTH for any other reason that cut it short."""
    response = answer.response
    if response.status != "incomplete":
        return Finish.DONE
    found = finish_of(response.incomplete_details.reason or "unknown")
    return Finish.FILTERED if found is Finish.FILTERED else Finish.LENGTH


def has_calls(items: list[OutputItem]) -> bool:
    """Whether the answer calls a tool."""
    return any(isinstance(item, OutputCall) for item in items)


class AnswerCounts(msgspec.Struct, frozen=True):
    """Token counts of an answer; counts that the model service does not report are 0.

    Attributes:
        prompt: tokens of the prompt, cached ones included.
        cached: prompt tokens that a prefix cache served.
        output: tokens of the answer, reasoning included.
        reasoning: output tokens that are reasoning.
    """

    prompt: int
    cached: int
    output: int
    reasoning: int

    @property
    def total(self) -> int:
        return self.prompt + self.output


def counts_of(answer: GatewayAnswer) -> AnswerCounts:
    """The answer's token counts, none of them negative."""
    usage = answer.response.usage
    prompt, output = max(usage.input_tokens, 0), max(usage.output_tokens, 0)
    cached = min(max(usage.cached_tokens, 0), prompt)
    reasoning = min(max(usage.reasoning_tokens, 0), output)
    return AnswerCounts(prompt, cached, output, reasoning)


def _item(item: pb.Item, minted: Minted) -> OutputItem:
    kind = item.WhichOneof("kind")
    if kind == "function_call":
        call = item.function_call
        name = call.name if call.HasField("name") else _name_in_overlay(item)
        return OutputCall(minted, name, _text(call.arguments), call.status or "completed")
    if kind == "reasoning":
        reasoning = item.reasoning
        return OutputReasoning(minted, list(reasoning.summary.texts), list(reasoning.content.texts))
    document = _document(item)
    if kind == "message":
        return OutputMessage(minted, _parts(document), item.message.status or "completed")
    return OutputOpaque(minted, document)


def _document(item: pb.Item) -> Json:
    try:
        document = item_to_dict(item)
    except CodecError:
        document = None
    return document if isinstance(document, dict) else {"type": "unknown"}


def _name_in_overlay(item: pb.Item) -> str:
    """A name that is not valid Unicode text is in the overlay."""
    name = _document(item).get("name")
    return name if isinstance(name, str) else ""


def _parts(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [_part(part) for part in content] if isinstance(content, list) else []


def _part(part: Any) -> Json:
    """The part with text as a string, whatever the recorded part contains."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return {"type": "unknown"}
    if part["type"] == "output_text":
        text = part.get("text")
        made = {"annotations": [], **part}
        made["text"] = text if isinstance(text, str) else ""
        if not isinstance(made.get("logprobs", []), list):
            del made["logprobs"]
        return made
    if part["type"] == "refusal" and not isinstance(part.get("refusal"), str):
        return {**part, "refusal": ""}
    return part


def _text(raw: bytes) -> str:
    try:
        return bytes_to_text(raw)
    except CodecError:
        return raw.decode("utf-8", "replace")
