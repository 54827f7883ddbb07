"""A streamed Chat Completions answer, put together again and handed on as deltas.

Output items take their places in the order in which they first appear. That is the order of
the whole answer too (reasoning, message, calls), unless the endpoint says otherwise; then
its order is kept, so that deltas and the whole answer agree.
Format: OpenAI's API reference, "chat completion chunk".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_model.backends.calls.progress import CallProgress, DeltaKind, GrowingText
from gymmesh_model.convert.from_chat import as_written
from gymmesh_model.convert.thinking import ThinkSplitter
from gymmesh_model.errors import AnswerInvalid

_CARRIED: Final = ("id", "created", "model", "service_tier", "system_fingerprint")
Json = dict[str, Any]


class _GrowingCall:
    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name: str | None = None  # not come yet
        self.arguments = GrowingText()

    def document(self) -> Json:
        function: Json = {"arguments": str(self.arguments)}
        if self.name is not None:
            function["name"] = self.name
        return {"id": self.id, "type": "function", "function": function}


class ChatFold:
    """Adds up chunks. progress: gets the deltas. think: whether `<think>` text is reasoning."""

    def __init__(self, progress: CallProgress, *, think: bool = False) -> None:
        self._progress = progress
        self.thinks = think
        self._splitter = ThinkSplitter() if think else None
        self._head: Json = {}
        self._texts: dict[DeltaKind, GrowingText] = {
            "text": GrowingText(),
            "reasoning": GrowingText(),
        }
        self._refusal: list[str] = []
        self._annotations: list[Any] = []
        self._logprobs: list[Any] = []
        self._calls: list[_GrowingCall] = []
        self._by_index: dict[int, _GrowingCall] = {}
        self._places: dict[str, int] = {}
        self.finish: Any = None

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes one chunk, parsed. Raises AnswerInvalid."""
        for key in _CARRIED:
            if chunk.get(key) is not None:
                self._head.setdefault(key, chunk[key])
        if chunk.get("usage") is not None:
            self._head["usage"] = chunk["usage"]
        choices = chunk.get("choices")
        if choices is None or choices == []:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, Mapping):
            raise AnswerInvalid("a chunk of it has choices that are none")
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            self._delta(delta)
        elif delta is not None:
            raise AnswerInvalid("a chunk of it has a delta that is no object")
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping) and isinstance(logprobs.get("content"), list):
            self._logprobs += logprobs["content"]
        if choice.get("finish_reason") is not None:
            self.finish = choice["finish_reason"]

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has come."""
        return bool(self._places)

    def end(self) -> None:
        """Hands on what was held back for what might have followed."""
        if self._splitter is not None:
            for kind, piece in self._splitter.end():
                self._say(kind, piece)
        for name, text in self._texts.items():
            if name in self._places:
                self._progress.delta(self._places[name], name, text.end())
        for call in self._calls:
            self._progress.delta(call.place, "arguments", call.arguments.end())

    def document(self) -> Json:
        """The answer as the endpoint would have given it whole, as far as it has come."""
        message: Json = {"role": "assistant", "content": str(self._texts["text"]) or None}
        if str(self._texts["reasoning"]):
            message["reasoning_content"] = str(self._texts["reasoning"])
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls:
            message["tool_calls"] = [call.document() for call in self._calls]
        choice: Json = {"index": 0, "message": message, "finish_reason": self.finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        return {**self._head, "choices": [choice]}

    def in_order(self, output: list[Json]) -> list[Json]:
        """The answer's output items in the order in which they appeared."""
        places = []
        calls = iter(self._calls)
        for item in output:
            if item.get("type") == "function_call":
                call = next(calls, None)
                places.append(len(output) if call is None else call.place)
            else:
                kind = "reasoning" if item.get("type") == "reasoning" else "text"
                places.append(self._places.get(kind, len(output)))
        if places == sorted(places):
            return output
        return [output[index] for index in sorted(range(len(output)), key=places.__getitem__)]

    def _delta(self, delta: Mapping[str, Any]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning is not None:
            self._say("reasoning", _text(reasoning, "reasoning"))
        content = delta.get("content")
        if content is not None:
            text = _text(content, "content")
            if self._splitter is None:
                self._say("text", text)
            else:
                for kind, piece in self._splitter.feed(text):
                    self._say(kind, piece)
        if delta.get("refusal"):
            self._place("text")
            self._refusal.append(_text(delta["refusal"], "refusal"))
        if isinstance(delta.get("annotations"), list):
            self._annotations += delta["annotations"]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise AnswerInvalid("a chunk's tool calls are not a list")
        if not calls and isinstance(delta.get("function_call"), Mapping):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for call in calls:
            self._call_delta(call)

    def _say(self, kind: DeltaKind, piece: str) -> None:
        if piece:
            self._progress.delta(self._place(kind), kind, self._texts[kind].add(piece))

    def _call_delta(self, delta: Any) -> None:
        if not isinstance(delta, Mapping):
            raise AnswerInvalid("a chunk has a tool call that is no object")
        function = delta.get("function")
        function = function if isinstance(function, Mapping) else {}
        call = self._call_of(delta)
        if "name" in function and not call.name:
            # Later pieces of some servers have null or an empty name.
            call.name = as_written(function["name"])
        text = call.arguments.add(as_written(function.get("arguments")))
        self._progress.delta(call.place, "arguments", text)

    def _call_of(self, delta: Mapping[str, Any]) -> _GrowingCall:
        given, index = delta.get("id"), delta.get("index")
        call_id = given if isinstance(given, str) else ""
        if isinstance(index, int):
            call = self._by_index.get(index)
        else:
            call = self._calls[-1] if self._calls else None
        # Some servers give every call the index 0; only the id tells them apart.
        if call is None or (call_id and call.id and call_id != call.id):
            call = _GrowingCall(self._place(f"call {len(self._calls)}"))
            self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        call.id = call.id or call_id
        return call

    def _place(self, what: str) -> int:
        return self._places.setdefault(what, len(self._places))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise AnswerInvalid(f"a chunk's {what} is not text")
    return value
