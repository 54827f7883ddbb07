"""Collects the events of a streamed message into the message that came whole. Pure but for the
deltas that it hands on.

Format: `message_start`, then for each block `content_block_start`, `content_block_delta` …,
`content_block_stop`; `message_delta` with the stop reason; `message_stop`. `ping` and unknown
events say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_model.backends.calls import CallProgress, DeltaKind, GrowingText
from gymmesh_model.errors import AnswerInvalid

Json = dict[str, Any]

# By the delta's type: the key of its piece, the block's key that grows, and the delta's kind.
_PIECES: Final[Mapping[str, tuple[str, str, DeltaKind]]] = {
    "text_delta": ("text", "text", "text"),
    "thinking_delta": ("thinking", "thinking", "reasoning"),
    "input_json_delta": ("partial_json", "input", "arguments"),
}


class MessageFold:
    """One streamed message.

    Attributes:
        stopped: whether the endpoint said that the message is whole.
    """

    def __init__(self, progress: CallProgress) -> None:
        self._progress = progress
        self._message: Json | None = None
        self._blocks: list[Json] = []
        self._texts: list[dict[str, GrowingText]] = []
        # Text blocks in a row are one output item.
        self._places: list[int] = []
        self.stopped = False

    @property
    def begun(self) -> bool:
        """Whether anything of the answer has come."""
        return bool(self._blocks)

    def add(self, event: Mapping[str, Any]) -> None:
        """Takes one event, parsed. Raises AnswerInvalid."""
        kind = event.get("type")
        if kind == "message_start":
            message = event.get("message")
            if not isinstance(message, Mapping):
                raise AnswerInvalid(
                    "an event message_start of the response's stream has no message"
                )
            self._message = dict(message)
        elif kind == "content_block_start":
            self._start(event)
        elif kind == "content_block_delta":
            self._delta(event)
        elif kind == "message_delta":
            self._end_of(event)
        elif kind == "message_stop":
            self.stopped = True
            for place, texts in zip(self._places, self._texts, strict=True):
                for key, text in texts.items():
                    name = next(name for _, at, name in _PIECES.values() if at == key)
                    self._progress.delta(place, name, text.end())

    def document(self) -> Json:
        """The message as the endpoint would have sent it whole, as far as it has come. The input of
        a tool use is the text that the model wrote.
        """
        if self._message is None:
            raise AnswerInvalid("the response's stream has no message")
        content = [
            {**block, **{key: str(text) for key, text in texts.items()}}
            for block, texts in zip(self._blocks, self._texts, strict=True)
        ]
        return {**self._message, "content": content}

    def _start(self, event: Mapping[str, Any]) -> None:
        block = event.get("content_block")
        if self._message is None or not isinstance(block, Mapping):
            raise AnswerInvalid(
                "a block of the response's stream comes before the event message_start, or is not "
                "an object"
            )
        if event.get("index", len(self._blocks)) != len(self._blocks):
            raise AnswerInvalid("the blocks of the response's stream are not in order")
        made = dict(block)
        joins = (
            self._blocks and made.get("type") == "text" and self._blocks[-1].get("type") == "text"
        )
        self._places.append(
            self._places[-1] if joins else (self._places[-1] + 1 if self._places else 0)
        )
        self._blocks.append(made)
        self._texts.append({})
        if made.get("type") == "tool_use":
            # The input of the start is empty; one that is not has come whole.
            if made.get("input") in ({}, None):
                self._texts[-1]["input"] = GrowingText()
        elif made.get("type") in ("text", "thinking"):
            key = str(made["type"])
            self._grow(len(self._blocks) - 1, key, "text" if key == "text" else "reasoning", made)

    def _grow(self, index: int, key: str, kind: DeltaKind, made: Json) -> None:
        text = self._texts[index].setdefault(key, GrowingText())
        begun = made.get(key)
        if isinstance(begun, str) and begun:
            self._progress.delta(self._places[index], kind, text.add(begun))

    def _delta(self, event: Mapping[str, Any]) -> None:
        index, delta = event.get("index"), event.get("delta")
        if not isinstance(index, int) or not 0 <= index < len(self._blocks):
            raise AnswerInvalid("a delta of the response's stream belongs to no block")
        if not isinstance(delta, Mapping):
            raise AnswerInvalid("a delta of the response's stream is not an object")
        kind = delta.get("type")
        if kind == "signature_delta":
            block = self._blocks[index]
            block["signature"] = str(block.get("signature") or "") + str(delta.get("signature", ""))
        elif kind == "citations_delta":
            self._blocks[index].setdefault("citations", None)
            cited = self._blocks[index]["citations"] or []
            self._blocks[index]["citations"] = [*cited, delta.get("citation")]
        elif kind in _PIECES:
            key, grows, name = _PIECES[str(kind)]
            piece = delta.get(key)
            if not isinstance(piece, str):
                raise AnswerInvalid(f"a delta of the response's stream has no {key}")
            text = self._texts[index].setdefault(grows, GrowingText())
            self._progress.delta(self._places[index], name, text.add(piece))

    def _end_of(self, event: Mapping[str, Any]) -> None:
        if self._message is None:
            raise AnswerInvalid("the response's stream ends before the event message_start")
        delta, usage = event.get("delta"), event.get("usage")
        if isinstance(delta, Mapping):
            self._message.update(delta)
        if isinstance(usage, Mapping):
            before = self._message.get("usage")
            counted = {key: value for key, value in usage.items() if value is not None}
            self._message["usage"] = {**(before if isinstance(before, Mapping) else {}), **counted}
