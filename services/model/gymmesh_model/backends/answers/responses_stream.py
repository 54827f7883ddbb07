"""A streamed answer of the Responses API: deltas handed on, the last event is the answer.

Format: OpenAI's API reference, "streaming events" of `POST /responses`.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.answers.read_response import read_response
from gymmesh_model.backends.calls.progress import CallProgress, DeltaKind, Surrogates
from gymmesh_model.backends.endpoint.classify import failed_response
from gymmesh_model.errors import answer_invalid
from gymmesh_responses import CodecError, dumps, loads, response_from_json

Json = dict[str, Any]
_DELTAS: Final[dict[str, DeltaKind]] = {
    "response.output_text.delta": "text",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
_LAST: Final = ("response.completed", "response.incomplete", "response.failed")


class ResponsesReader:
    """Reads one stream. `response` is set once it `ended`."""

    def __init__(self, name: str, secrets: tuple[str, ...], progress: CallProgress) -> None:
        self._name = name
        self._secrets = secrets
        self._progress = progress
        self._head: Json = {}
        self._items: dict[int, Json] = {}
        self._done: set[int] = set()
        self._texts: dict[int, list[str]] = {}
        self._halves: dict[int, tuple[str, Surrogates]] = {}
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
            raise answer_invalid(self._name, "an event of its stream is not JSON") from None
        if not isinstance(event, dict):
            raise answer_invalid(self._name, "an event of its stream is not an object")
        kind = str(event.get("type"))
        if kind in _DELTAS:
            self._delta(event, kind)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(event, done=kind.endswith("done"))
        elif kind in ("response.created", "response.in_progress"):
            if isinstance(event.get("response"), dict):
                self._head = event["response"]
        elif kind in _LAST:
            self.whole(dumps(event.get("response")))
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
            raise answer_invalid(self._name, "its stream ended before the answer did")
        return self.response

    def whole(self, body: bytes) -> None:
        self.response = read_response(self._name, self._secrets, body)
        for index, (_, halves) in self._halves.items():
            kind: DeltaKind = _DELTAS[self._halves[index][0]]
            self._progress.delta(index, kind, halves.end())

    def _delta(self, event: Json, kind: str) -> None:
        index, piece = event.get("output_index"), event.get("delta")
        if not isinstance(index, int) or index < 0 or not isinstance(piece, str):
            raise answer_invalid(self._name, f"an event '{kind}' has no text or no place")
        first, halves = self._halves.setdefault(index, (kind, Surrogates()))
        if first != kind:
            # Reasoning comes in full or as a summary; a mixture would be neither.
            return
        text = halves.feed(piece)
        self._texts.setdefault(index, []).append(text)
        self._progress.delta(index, _DELTAS[kind], text)

    def _item(self, event: Json, *, done: bool) -> None:
        index, item = event.get("output_index"), event.get("item")
        if isinstance(index, int) and isinstance(item, dict):
            self._items[index] = item
            if done:
                self._done.add(index)

    def _partial(self) -> responses_pb2.Response | None:
        output = [self._partial_item(index) for index in sorted(self._items)]
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

    def _partial_item(self, index: int) -> Json:
        item = copy.deepcopy(self._items[index])
        if index in self._done:
            return item
        text, kind = "".join(self._texts.get(index, [])), item.get("type")
        if kind == "message":
            part = {"type": "output_text", "text": text, "annotations": []}
            item["content"] = [part] if text else []
        elif kind == "function_call":
            item["arguments"] = text
        elif kind == "reasoning" and text:
            item["content"] = [{"type": "reasoning_text", "text": text}]
        item["status"] = "incomplete"
        return item
