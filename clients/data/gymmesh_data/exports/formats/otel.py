"""Rollouts as spans of OpenTelemetry's GenAI conventions, in OTLP's JSON form.

One line is one request for a collector (`resourceSpans`), as its file receiver reads them, and has
one trace: a span `invoke_agent` with the verdict as an event, below it a span `chat` for each model
call and a span `execute_tool` for each tool call. A row has no times of single calls, so these
spans have the times of their rollout. A `chat` span has the messages and the token ids that are new
since the previous call. The conventions have no attribute for token ids, so they are JSON text
under `gymmesh.`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from gymmesh_data.exports.format import Format, Taken, TokenPlace
from gymmesh_data.exports.formats.chat import as_text
from gymmesh_data.rollout import Json, object_of

_INTERNAL, _CLIENT = 1, 3  # SpanKind of OTLP
_SCOPE: Final = {"name": "gymmesh"}
_FINISH: Final = {
    "MODEL_FINISHED": "stop",
    "MAX_OUTPUT_TOKENS": "length",
    "CONTEXT_LENGTH": "length",
    "CONTENT_FILTER": "content_filter",
}


def trace(taken: Taken) -> Iterator[Json]:
    """A rollout as one request with its trace."""
    spans = _Spans(taken)
    spans.root()
    for place, message in enumerate(taken.said.messages):
        if message["role"] == "assistant" and place >= taken.said.prompt_length:
            spans.chat(place, message)
    resource = {"attributes": _attributes({"service.name": "gymmesh"})}
    scopes = [{"scope": _SCOPE, "spans": spans.spans}]
    yield {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}


class _Spans:
    """The spans of a rollout. Ids are made of the rollout's, so that an export can be repeated."""

    def __init__(self, taken: Taken) -> None:
        self.spans: list[Json] = []
        self._taken = taken
        rollout, said = taken.rollout, taken.said
        name = rollout.rollout_id or rollout.where
        self._trace_id = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._model = rollout.model
        self._start, self._end = _times(object_of(rollout.metadata, "timings"))
        reason = rollout.stop_reason
        self._finish = _FINISH.get(reason, reason.lower() or "stop")
        self._told = 0  # messages that an earlier span has
        #: Where the results of a tool call's id are, in order.
        self._results: dict[str, list[int]] = {}
        for place, message in enumerate(said.messages):
            if message["role"] == "tool":
                self._results.setdefault(message["tool_call_id"], []).append(place)
        if said.messages:
            said.losses["times of single calls"] += 1

    def root(self) -> None:
        """The span of the rollout."""
        rollout, said = self._taken.rollout, self._taken.said
        usage = rollout.total_usage
        agent = rollout.agent
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "gymmesh",
            "gen_ai.request.model": self._model,
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": rollout.rollout_id,
            "gen_ai.response.finish_reasons": [self._finish],
            "gen_ai.usage.input_tokens": usage.get("input_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens"),
            "gen_ai.tool.definitions": as_text(said.tools) if said.tools else None,
            "gymmesh.task_id": rollout.task_id,
            "gymmesh.environment": rollout.environment,
            "gymmesh.repeat_index": rollout.repeat_index,
            "gymmesh.stop_reason": rollout.stop_reason,
        }
        versions = rollout.metadata.get("weights_versions")
        if isinstance(versions, list):
            attributes["gymmesh.weights_versions"] = as_text(versions)
        span = self._span(f"invoke_agent {agent}".strip(), _INTERNAL, attributes)
        if rollout.reward is not None:
            named = {"gen_ai.evaluation.name": "reward"}
            verdict = _attributes(named | {"gen_ai.evaluation.score.value": rollout.reward})
            event = {"name": "gen_ai.evaluation.result", "timeUnixNano": str(self._end)}
            span["events"] = [event | {"attributes": verdict}]

    def chat(self, place: int, message: Json) -> None:
        """The span of the model call that wrote a message, and those of its tool calls."""
        said = self._taken.said
        read = said.messages[self._told : place]
        self._told = place + 1
        finish = self._finish if place == len(said.messages) - 1 else "stop"
        if message.get("tool_calls"):
            finish = "tool_call"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gymmesh",
            "gen_ai.request.model": self._model,
            "gen_ai.conversation.id": self._taken.rollout.rollout_id,
            "gen_ai.input.messages": as_text([_message(one) for one in read]),
            "gen_ai.output.messages": as_text([_message(message) | {"finish_reason": finish}]),
        }
        tokens = self._taken.call_tokens(place)
        if tokens is not None:
            attributes["gen_ai.usage.output_tokens"] = len(tokens.sampled)
            if tokens.prompt is not None:
                attributes["gymmesh.prompt_prefix_tokens"] = tokens.prefix
                attributes["gymmesh.prompt_token_ids"] = as_text(tokens.prompt)
            attributes["gymmesh.generation_token_ids"] = as_text(tokens.sampled)
            attributes["gymmesh.generation_log_probs"] = as_text(tokens.logprobs)
        self._span(f"chat {self._model}".strip(), _CLIENT, attributes)
        for call in message.get("tool_calls", ()):
            function, name = call["function"], call["function"]["name"]
            result = self._result(place, call["id"])
            told = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call["id"],
                "gen_ai.tool.call.arguments": function["arguments"],
                "gen_ai.tool.call.result": result if isinstance(result, str) else as_text(result),
            }
            self._span(f"execute_tool {name}", _INTERNAL, told)

    def _result(self, place: int, call_id: str) -> Any:
        """What a call in the message there was answered: some models use ids again later on."""
        places = self._results.get(call_id, [])
        later = bisect_right(places, place)
        return self._taken.said.messages[places[later]]["content"] if later < len(places) else None

    def _span(self, name: str, kind: int, attributes: dict[str, Any]) -> Json:
        number = len(self.spans)
        made = hashlib.sha256(f"{self._trace_id}/{number}".encode()).hexdigest()[:16]
        span: Json = {
            "traceId": self._trace_id,
            "spanId": made,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(self._start),
            "endTimeUnixNano": str(self._end),
            "attributes": _attributes(attributes),
        }
        if number:
            span["parentSpanId"] = self.spans[0]["spanId"]
        self.spans.append(span)
        return span


def _times(timings: Json) -> tuple[int, int]:
    """Nanoseconds since 1970; zero where the row does not say."""
    began, took = timings.get("started_at"), timings.get("duration_us")
    start = int(began * 1e9) if isinstance(began, int | float) and 0 <= began < 1e10 else 0
    return start, start + (took * 1000 if type(took) is int and 0 <= took < 10**15 else 0)


def _message(message: Json) -> Json:
    parts: list[Json] = []
    if "reasoning_content" in message:
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    content = message["content"]
    if message["role"] == "tool":
        answer = {"type": "tool_call_response", "id": message["tool_call_id"], "response": content}
        return {"role": "tool", "parts": [answer]}
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    elif content is not None:
        parts += [
            {"type": "text", "content": one["text"]}
            if one["type"] == "text"
            else {"type": "uri", "modality": "image", "uri": one["image_url"]["url"]}
            for one in content
        ]
    parts += [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "parts": parts}


def _attributes(values: dict[str, Any]) -> list[Json]:
    """As OTLP's JSON has them; what is not known is left out."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in values.items()
        if value is not None and value != ""
    ]


def _value(value: Any) -> Json:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": as_text(value)}


MADE: Final = (
    Format(
        name="otel",
        about="GenAI spans of OpenTelemetry as OTLP JSON",
        of_rollout=trace,
        tokens=TokenPlace.BESIDE,
    ),
)
"""The formats of this module."""
