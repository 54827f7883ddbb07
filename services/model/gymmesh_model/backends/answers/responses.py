"""Answers of the Responses API, whole and streamed.

The deltas of a stream are passed on, and its last event is the answer. If that event has no output,
the items before it are the answer's.

Format: OpenAI's API reference, "streaming events" of `POST /responses`.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.calls import CallProgress, DeltaKind, GrowingText
from gymmesh_model.backends.endpoint import failed_response
from gymmesh_model.errors import answer_failed, answer_invalid
from gymmesh_responses import (
    CodecError,
    Finish,
    dumps,
    finish_of,
    loads,
    response_from_json,
    response_to_dict,
)

Json = dict[str, Any]
_DELTAS: Final[dict[str, DeltaKind]] = {
    "response.output_text.delta": "text",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
_OVER: Final = ("completed", "incomplete", "")
_LAST: Final = ("response.completed", "response.incomplete", "response.failed")


def read_response(name: str, secrets: tuple[str, ...], answer: bytes) -> responses_pb2.Response:
    """The response in an endpoint's answer.

    Raises MeshError MODEL_ANSWER_INVALID when there is none, or the failure that it reports.
    """
    try:
        response = response_from_json(answer)
    except CodecError as error:
        raise answer_invalid(name, _cause(answer, error)) from None
    status = response.status
    if status == "failed" or response.HasField("error"):
        error_of: Any = response_to_dict(response).get("error") or {}
        raise failed_response(name, error_of, secrets)
    if response.output_omitted:
        raise answer_invalid(name, "the response has no list 'output'")
    for index, item in enumerate(response.output):
        if item.HasField("opaque") and not item.opaque.type:
            raise answer_invalid(name, f"output[{index}] is not an object with a 'type'")
    if status == "incomplete":
        why = response.incomplete_details.reason
        if finish_of(why) in (Finish.FAILED, Finish.ABORTED):
            raise answer_failed(name, why)
    if status in ("cancelled", "canceled"):
        raise answer_failed(name, status)
    if status not in _OVER:
        raise answer_invalid(name, f"the response's status is '{status}'")
    return response


def _cause(answer: bytes, error: CodecError) -> str:
    try:
        loads(answer)
    except CodecError:
        return "body is not JSON"
    return str(error)


class ResponsesReader:
    """Reads one stream. `response` is set once it `ended`."""

    def __init__(self, name: str, secrets: tuple[str, ...], progress: CallProgress) -> None:
        self._name = name
        self._secrets = secrets
        self._progress = progress
        self._head: Json = {}
        self._items: dict[int, Json] = {}
        self._done: set[int] = set()
        self._texts: dict[int, tuple[str, GrowingText]] = {}  # by place, each with its event's kind
        self.response: responses_pb2.Response | None = None
        progress.partial = self._partial

    @property
    def ended(self) -> bool:
        return self.response is not None

    def feed(self, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            return
        try:
            event = loads(data)
        except CodecError:
            raise answer_invalid(
                self._name, "an event of the response's stream is not JSON"
            ) from None
        if not isinstance(event, dict):
            raise answer_invalid(self._name, "an event of the response's stream is not an object")
        kind = str(event.get("type"))
        if kind in _DELTAS:
            self._delta(event, kind)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            index, item = event.get("output_index"), event.get("item")
            if isinstance(index, int) and isinstance(item, dict):
                self._items[index] = item
                if kind.endswith("done"):
                    self._done.add(index)
        elif kind in ("response.created", "response.in_progress"):
            if isinstance(event.get("response"), dict):
                self._head = event["response"]
        elif kind in _LAST:
            self.whole(dumps(self._with_output(event.get("response"))))
        elif kind == "error":
            nested = event.get("error")
            raise failed_response(
                self._name, nested if isinstance(nested, dict) else event, self._secrets
            )

    def end(self) -> None:
        self.respond()

    def respond(self) -> responses_pb2.Response:
        """The answer. Raises MeshError where the stream ended before it did."""
        if self.response is None:
            raise answer_invalid(
                self._name, "the response's stream ended before the answer was complete"
            )
        return self.response

    def whole(self, body: bytes) -> None:
        self.response = read_response(self._name, self._secrets, body)
        for index, (kind, text) in self._texts.items():
            self._progress.delta(index, _DELTAS[kind], text.end())

    def _with_output(self, document: Any) -> Any:
        """The last event's document; with the items that came before where it repeats none."""
        came = self._items or self._texts
        if not isinstance(document, dict) or document.get("output") or not came:
            return document
        status = "incomplete" if document.get("status") == "incomplete" else "completed"
        places = sorted({*self._items, *self._texts})
        output = [self._partial_item(index, status) for index in places]
        return {**document, "output": output}

    def _delta(self, event: Json, kind: str) -> None:
        index, piece = event.get("output_index"), event.get("delta")
        if not isinstance(index, int) or index < 0 or not isinstance(piece, str):
            raise answer_invalid(
                self._name,
                f"an event '{kind}' of the response's stream has no text in 'delta' or no valid "
                "'output_index'",
            )
        first, text = self._texts.setdefault(index, (kind, GrowingText()))
        # Reasoning comes in full or as a summary; a mixture would be neither.
        if first == kind:
            self._progress.delta(index, _DELTAS[kind], text.add(piece))

    def _partial(self) -> responses_pb2.Response | None:
        output = [self._partial_item(index, "incomplete") for index in sorted(self._items)]
        document = {
            **self._head,
            "status": "incomplete",
            "incomplete_details": {"reason": "aborted"},
            "output": output,
        }
        try:
            return response_from_json(document)
        except CodecError:
            return None

    def _partial_item(self, index: int, status: str) -> Json:
        """The item as far as it came. Raises MeshError for arguments whose call never came."""
        if index in self._done:
            return copy.deepcopy(self._items[index])
        if index not in self._texts:
            return {**copy.deepcopy(self._items[index]), "status": status}
        event, pieces = self._texts[index]
        said, text = _DELTAS[event], str(pieces)
        if index in self._items:
            item = copy.deepcopy(self._items[index])
        elif said == "arguments":
            raise answer_invalid(
                self._name,
                f"the response's stream sent arguments for output[{index}] without a function call",
            )
        elif said == "reasoning":
            item = {"type": "reasoning", "summary": []}
        else:
            item = {"type": "message", "role": "assistant"}
        kind = item.get("type")
        if kind == "message":
            part = {"type": "output_text", "text": text, "annotations": []}
            item["content"] = [part] if text else []
        elif kind == "function_call":
            item["arguments"] = text
        elif kind == "reasoning" and text:
            item["content"] = [{"type": "reasoning_text", "text": text}]
        item["status"] = status
        return item
