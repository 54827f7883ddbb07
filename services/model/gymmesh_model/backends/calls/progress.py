"""What a streamed call has brought so far: deltas as they come, and the answer up to now."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Literal, Protocol

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import text_to_bytes

DeltaKind = Literal["text", "arguments", "reasoning"]
OnDelta = Callable[[model_pb2.ResponseDelta], None]


class CallProgress:
    """One streamed call, filled by its backend.

    on_delta: gets each delta at once, or None when they are not read (`is_read`). begun: whether
    one was handed over. first_at: when the first piece came, in monotonic seconds; 0: none yet.
    partial: makes a response of what there is, with status `incomplete` and reason `aborted`; None
    until the backend has set it.
    """

    def __init__(self, on_delta: OnDelta | None = None) -> None:
        self._on_delta = on_delta
        self.is_read = on_delta is not None
        self.begun = False
        self.first_at = 0.0
        self.partial: Callable[[], responses_pb2.Response | None] | None = None

    def delta(self, output_index: int, kind: DeltaKind, piece: str) -> None:
        """Hands on a piece of the output item at that place; an empty one is left out."""
        if not piece:
            return
        if not self.first_at:
            self.first_at = monotonic()
        if self._on_delta is None:
            return
        self.begun = True
        delta = model_pb2.ResponseDelta(output_index=output_index)
        setattr(delta, kind, text_to_bytes(piece))
        self._on_delta(delta)


class StreamReader(Protocol):
    """Builds an answer from an endpoint's stream; raises MeshError for an invalid stream."""

    @property
    def ended(self) -> bool:
        """Whether the answer is whole; what follows is not read."""

    def feed(self, data: bytes) -> None:
        """Takes the data of one server-sent event."""

    def end(self) -> None:
        """The stream is over, `ended` or not."""

    def whole(self, body: bytes) -> None:
        """Accepts a body that is not a stream: some endpoints never stream."""

    def respond(self) -> responses_pb2.Response:
        """The answer, once it is whole."""


class GrowingText:
    """A text that comes in pieces, which may cut a surrogate pair in two."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""

    def add(self, piece: str) -> str:
        """The text to pass on: everything except an incomplete character at the end."""
        text = self._held + piece
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        if any("\ud800" <= char <= "\udfff" for char in text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        self._pieces.append(text)
        return text

    def end(self) -> str:
        """The half that stayed alone."""
        text, self._held = self._held, ""
        self._pieces.append(text)
        return text

    def __str__(self) -> str:
        return "".join(self._pieces)
