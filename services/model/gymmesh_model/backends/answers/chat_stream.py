"""A streamed Chat Completions answer, put together again and handed on as deltas.

Output items take their places in the order in which they first appear. That is the order of
the whole answer too (reasoning, message, calls), unless the endpoint says otherwise; then
its order is kept, so that deltas and the whole answer agree. They differ where a `</think>` shows
only at its end that what came before was reasoning.
Format: OpenAI's API reference, "chat completion chunk".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gymmesh_model.backends.answers.call_pieces import CallPieces
from gymmesh_model.backends.calls import CallProgress, DeltaKind, GrowingText
from gymmesh_model.convert import ThinkSplitter, content_pieces
from gymmesh_model.errors import AnswerInvalid

_CARRIED: Final = ("id", "created", "model", "service_tier", "system_fingerprint")
Json = dict[str, Any]


class ChatFold:
    """Adds up chunks.

    progress: gets the deltas. think: whether `<think>` text is reasoning; deltas have it as such,
    and the document in its text, as a whole answer has. tools: the names of those offered.
    finish: why the answer ended; None until it did.
    """

    def __init__(
        self, progress: CallProgress, *, think: bool = False, tools: Collection[str] = ()
    ) -> None:
        self._progress = progress
        self.thinks = think
        self._splitter = ThinkSplitter() if think else None
        self._head: Json = {}
        self._texts: dict[DeltaKind, GrowingText] = {
            "text": GrowingText(),
            "reasoning": GrowingText(),
        }
        self._content = GrowingText()  # as it came, its tags included
        self._reasoning = GrowingText()  # what came apart from it
        self._refusal: list[str] = []
        self._annotations: list[Any] = []
        self._logprobs: list[Any] = []
        self._calls = CallPieces(tools)
        self._places: dict[str, int] = {}
        self._told = False  # whether a chunk had a part of an answer, be it empty
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
            raise AnswerInvalid("a chunk of the response's stream has invalid choices")
        self._choice(choice)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping) and isinstance(logprobs.get("content"), list):
            self._logprobs += logprobs["content"]
        finish = choice.get("finish_reason")
        # Some servers write an empty one into every chunk.
        if finish or (finish is not None and self.finish is None):
            self.finish = finish

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has come."""
        return bool(self._places)

    def end(self) -> None:
        """Passes on the text that was held back for possible further text.

        Raises AnswerInvalid if no chunk had any part of an answer.
        """
        if not self._told:
            raise AnswerInvalid("no chunk of the response's stream has a delta or a message")
        if self._splitter is not None:
            for kind, piece in self._splitter.end():
                self._say(kind, piece)
        for text in (self._content, self._reasoning):
            text.end()
        for name, text in self._texts.items():
            if name in self._places:
                self._progress.delta(self._places[name], name, text.end())
        for call in self._calls.calls:
            self._progress.delta(call.place, "arguments", call.arguments.end())

    def document(self) -> Json:
        """The answer as the endpoint would have given it whole, as far as it has come."""
        message: Json = {"role": "assistant", "content": str(self._content) or None}
        if str(self._reasoning):
            message["reasoning_content"] = str(self._reasoning)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls.calls:
            message["tool_calls"] = [call.document() for call in self._calls.calls]
        choice: Json = {"index": 0, "message": message, "finish_reason": self.finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        return {**self._head, "choices": [choice]}

    def in_order(self, output: list[Json]) -> list[Json]:
        """The answer's output items in the order in which they appeared."""
        places = []
        calls = iter(self._calls.calls)
        for item in output:
            if item.get("type") == "function_call":
                call = next(calls, None)
                places.append(len(output) if call is None else call.place)
            elif item.get("type") == "reasoning":
                # Without a place it was the beginning of what came as text.
                places.append(self._places.get("reasoning", -1))
            else:
                places.append(self._places.get("text", len(output)))
        if places == sorted(places):
            return output
        return [output[index] for index in sorted(range(len(output)), key=places.__getitem__)]

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta, message, text = (choice.get(key) for key in ("delta", "message", "text"))
        if delta is not None and not isinstance(delta, Mapping):
            raise AnswerInvalid(
                "a chunk of the response's stream has a delta that is not an object"
            )
        if isinstance(delta, Mapping):
            self._told = True
            self._delta(delta)
        if isinstance(message, Mapping):
            self._told = True
            self._message(message)
        elif delta is None and isinstance(text, str):
            self._told = True
            self._say_content(text)

    def _delta(self, delta: Mapping[str, Any]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning is not None:
            self._reason(_text(reasoning, "reasoning"))
        self._say_content(delta.get("content"))
        if delta.get("refusal"):
            self._refuse(_text(delta["refusal"], "refusal"))
        if isinstance(delta.get("annotations"), list):
            self._annotations += delta["annotations"]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise AnswerInvalid("a chunk's tool calls are not a list")
        if not calls and isinstance(delta.get("function_call"), Mapping):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for piece in calls:
            before = len(self._calls.calls)
            call, text = self._calls.add(piece, len(self._places))
            if len(self._calls.calls) > before:
                self._place(f"call {before}")
            self._progress.delta(call.place, "arguments", text)

    def _message(self, message: Mapping[str, Any]) -> None:
        """A whole message in place of a delta, or after all of them: what it says that is new."""
        new = dict(message)
        if self._calls.calls:
            new.pop("tool_calls", None)
        for key, come in (("content", self._content), ("reasoning_content", self._reasoning)):
            said = new.get(key)
            if isinstance(said, str):
                new[key] = said.removeprefix(str(come))
        self._delta(new)

    def _say_content(self, content: Any) -> None:
        for kind, said in content_pieces(content):
            if kind == "reasoning":
                self._reason(said)
            elif kind == "refusal":
                self._refuse(said)
            elif kind == "note":
                self._annotations.append(dict(said))
            else:
                self._content.add(said)
                pieces = [(kind, said)] if self._splitter is None else self._splitter.feed(said)
                for part, piece in pieces:
                    self._say(part, piece)

    def _reason(self, text: str) -> None:
        self._reasoning.add(text)
        self._say("reasoning", text)

    def _refuse(self, text: str) -> None:
        self._place("text")
        self._refusal.append(text)

    def _say(self, kind: DeltaKind, piece: str) -> None:
        if piece:
            self._progress.delta(self._place(kind), kind, self._texts[kind].add(piece))

    def _place(self, what: str) -> int:
        return self._places.setdefault(what, len(self._places))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise AnswerInvalid(f"a chunk's {what} is not text")
    return value
