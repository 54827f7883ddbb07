"""The normal form of items: what two spellings of one conversation have in common. Pure.

Equal in normal form are:
    - arguments whose JSON values are equal after a round trip through JavaScript: keys in any
      order, 1 and 1.0, integers beyond 2^53 at the precision of a double; no arguments and `{}`
    - texts in one block, in several blocks, or in several consecutive messages of one role
    - an answer with its reasoning and without, and with other white space in its text
    - ids and status of any kind: the place of a call in the answer identifies the tool's output

Everything else is a difference: roles, texts, images, names, the order of items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses import CodecError, dumps, loads

DIGEST_BYTES: Final = 16
# Stands between the parts of a stream that is hashed; no UTF-8 text has it.
_MARK: Final = b"\xff"
_PREAMBLE_ROLES: Final = frozenset(("system", "developer"))
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# The largest integer below which JavaScript keeps every integer.
_EXACT: Final = 1 << 53
_VOLATILE: Final = frozenset(("id", "call_id", "status"))


class CallForm(msgspec.Struct, frozen=True):
    """A tool call in normal form.

    Attributes:
        name: the tool's name; for a call of an opaque kind, its type.
        arguments: canonical JSON; for arguments that are not a JSON object, a mark and their bytes.
        wire_id: the call's id as the program sent it; not part of the normal form.
    """

    name: str
    arguments: bytes
    wire_id: str

    @property
    def is_object(self) -> bool:
        """Whether the arguments are a JSON object, which every dialect can send and receive."""
        return not self.arguments.startswith(_MARK)


class AnswerForm(msgspec.Struct, frozen=True):
    """One answer of a model, in normal form.

    Attributes:
        text: the texts, joined, unchanged.
        bare: the joined texts without white space.
        calls: the tool calls in order.
        key: 16 bytes, equal for equal answers.
        thought: the reasoning without white space; not part of the key, because programs may omit
            it.
    """

    text: str
    bare: str
    calls: tuple[CallForm, ...]
    key: bytes
    thought: str


def is_model_item(item: pb.Item) -> bool:
    """Whether an item is of a kind that a model writes."""
    kind = item.WhichOneof("kind")
    if kind == "message":
        return item.message.role == "assistant"
    if kind == "opaque":
        return item.opaque.type.endswith("_call")
    return kind in ("function_call", "reasoning")


def is_preamble_item(item: pb.Item) -> bool:
    """Whether an item is a system or developer message."""
    return item.WhichOneof("kind") == "message" and item.message.role in _PREAMBLE_ROLES


def answer_form(items: Iterable[pb.Item]) -> AnswerForm:
    """The normal form of an answer's items."""
    texts: list[str] = []
    calls: list[CallForm] = []
    thoughts: list[str] = []
    for item in items:
        kind = item.WhichOneof("kind")
        if kind == "reasoning":
            thoughts += item.reasoning.content.texts or item.reasoning.summary.texts
        elif kind == "message":
            texts += [text for text in _texts(item.message) if text is not None]
        elif kind == "function_call":
            call = item.function_call
            calls.append(CallForm(call.name, canonical_arguments(call.arguments), call.call_id))
        elif kind == "opaque" and item.opaque.type.endswith("_call"):
            calls.append(_opaque_call(item.opaque))
    text = "".join(texts)
    bare = bare_text(text)
    digest = blake2b(bare.encode(), digest_size=DIGEST_BYTES)
    _hash_calls(digest, calls)
    thought = bare_text("".join(thoughts))
    return AnswerForm(text, bare, tuple(calls), digest.digest(), thought)


def _hash_calls(digest: blake2b, calls: Iterable[CallForm]) -> None:
    for one in calls:
        digest.update(_MARK + b"c" + one.name.encode() + _MARK)
        digest.update(one.arguments)


def bare_text(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


def canonical_arguments(raw: bytes) -> bytes:
    """A tool call's arguments in normal form."""
    if not raw.strip():
        return b"{}"
    value = _document(raw)
    return _canonical_json(value, raw) if type(value) is dict else _MARK + raw


def _canonical_json(value: Any, raw: bytes) -> bytes:
    """The same bytes for JSON values that are equal after a round trip through JavaScript. If
    the value is nested too deeply, its bytes unchanged.
    """
    try:
        return dumps(_canonical(value))
    except (CodecError, RecursionError):
        return _MARK + raw


def user_texts(items: Sequence[pb.Item]) -> list[str]:
    """The texts of the user's messages: each part, and each whole message of several parts."""
    found: list[str] = []
    for item in items:
        if item.WhichOneof("kind") == "message" and item.message.role == "user":
            parts = [text for text in _texts(item.message) if text is not None]
            found += parts
            if len(parts) > 1:
                found.append("".join(parts))
    return found


def given_texts(items: Iterable[pb.Item]) -> Iterable[str]:
    """The texts in the model's input: of messages that it did not write, and of tool outputs."""
    for item in items:
        if item.WhichOneof("kind") == "function_call_output":
            output = item.function_call_output
            if output.WhichOneof("output") == "text":
                yield output.text.decode(errors="replace")
            else:
                parts = _content_parts(output.parts, output.overlay_json)
                yield "".join(text for text, _ in parts if text is not None)
        elif not is_model_item(item):
            yield message_text_of(item)


def message_text_of(item: pb.Item) -> str:
    """The joined texts of a message; empty for every other kind."""
    if item.WhichOneof("kind") != "message":
        return ""
    return "".join(text for text in _texts(item.message) if text is not None)


class PrefixHash:
    """A hash of a conversation that grows item by item, with a digest after each item.

    Consecutive items of the model are hashed as one answer, recorded or not. So a conversation
    always has the same digest, no matter which calls have been recorded.
    """

    __slots__ = ("_calls", "_hash", "_last", "_places", "_texts")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._last = b""  # what the last text belongs to, so that the next of that role joins it
        self._places: dict[str, int] = {}  # of each call that was written last in a row, by wire id
        # The texts and the calls of what a model writes in a row, while it does.
        self._texts: blake2b | None = None
        self._calls = blake2b(digest_size=DIGEST_BYTES)

    def copy(self) -> PrefixHash:
        """An independent copy with the same state."""
        copied = PrefixHash()
        copied._hash, copied._last = self._hash.copy(), self._last
        copied._places = {**self._places}
        copied._texts = self._texts.copy() if self._texts is not None else None
        copied._calls = self._calls.copy()
        return copied

    def digest(self) -> bytes:
        """The digest of everything so far."""
        return self._with_answer(self._hash.copy()).digest()

    def add_answer(self, answer: AnswerForm, wire: Sequence[CallForm]) -> None:
        """Add a recorded answer; `wire`: its calls with the ids that the program uses."""
        self._add_written(answer, [call.wire_id for call in wire])

    def add_item(self, item: pb.Item) -> None:
        """Add an item that no recorded answer contains."""
        kind = item.WhichOneof("kind")
        if kind == "reasoning":
            return  # it may be left out
        if is_model_item(item):
            form = answer_form((item,))
            self._add_written(form, [call.wire_id for call in form.calls])
            for text, other in _parts(item.message) if kind == "message" else ():
                if text is None:
                    self._calls.update(_MARK + b"p" + other)
        elif kind == "message":
            self._add_message(item.message)
        elif kind == "function_call_output":
            self._add_output(item.function_call_output)
        elif kind == "opaque":
            self._add_opaque(item.opaque)

    def _add_written(self, form: AnswerForm, wire_ids: Sequence[str]) -> None:
        if self._texts is None:
            self._texts = blake2b(digest_size=DIGEST_BYTES)
            self._calls = blake2b(digest_size=DIGEST_BYTES)
            self._places, self._last = {}, b""
        self._texts.update(form.bare.encode())
        _hash_calls(self._calls, form.calls)
        begin = len(self._places)
        self._places.update((one, begin + place) for place, one in enumerate(wire_ids))

    def _with_answer(self, hashed: blake2b) -> blake2b:
        """A hash that includes the answer in progress."""
        if self._texts is not None:
            hashed.update(_MARK + b"A" + self._texts.digest() + self._calls.digest())
        return hashed

    def _put(self, kind: bytes, value: bytes) -> None:
        self._with_answer(self._hash).update(_MARK + kind + value)
        self._last, self._texts = kind, None

    def _add_message(self, message: pb.Message) -> None:
        whose = b"m" + message.role.encode() + _MARK
        for text, other in _parts(message):
            if text is None:
                self._put(b"p", other)
                self._last = b""
            elif self._last == whose:
                self._hash.update(text.encode())
            else:
                self._put(whose, text.encode())

    def _add_output(self, output: pb.FunctionCallOutput) -> None:
        self._put(b"o", self._place(output.call_id))
        if output.WhichOneof("output") == "text":
            self._put(b"t", output.text)
            return
        for text, other in _content_parts(output.parts, output.overlay_json):
            if text is None:
                self._put(b"p", other)
            elif self._last == b"t":
                self._hash.update(text.encode())
            else:
                self._put(b"t", text.encode())

    def _add_opaque(self, item: pb.OpaqueItem) -> None:
        document = _document(item.json)
        wire_id = document.get("call_id") if isinstance(document, dict) else None
        if isinstance(wire_id, str):
            self._put(b"o", self._place(wire_id))
        self._put(b"x", _opaque_form(document, item.json))

    def _place(self, wire_id: str) -> bytes:
        place = self._places.get(wire_id)
        return b"?" + wire_id.encode("utf-8", "surrogatepass") if place is None else b"%d" % place


def _texts(message: pb.Message) -> Iterable[str | None]:
    return (text for text, _ in _parts(message))


def _parts(message: pb.Message) -> Iterable[tuple[str | None, bytes]]:
    """The content's parts: for a text, the text; for anything else, None and its canonical
    bytes.
    """
    if message.HasField("text"):
        return ((message.text, b""),)
    return _content_parts(message.parts, message.overlay_json)


def _content_parts(
    parts: pb.ContentParts, overlay_json: bytes
) -> Iterable[tuple[str | None, bytes]]:
    if not parts.parts:
        # Text that a protobuf string cannot hold stands in the overlay, as all unusual content.
        return ((None, overlay_json),) if overlay_json else ()
    return [_part(part) for part in parts.parts]


def _part(part: pb.ContentPart) -> tuple[str | None, bytes]:
    kind = part.WhichOneof("kind")
    if kind == "input_text" and part.input_text.HasField("text"):
        return part.input_text.text, b""
    if kind == "output_text" and part.output_text.HasField("text"):
        return part.output_text.text, b""
    if kind == "refusal" and part.refusal.HasField("refusal"):
        return part.refusal.refusal, b""
    if kind == "input_image":
        image = part.input_image
        return None, f"{image.image_url}\n{image.file_id}".encode()
    if kind == "opaque":
        return None, _opaque_form(_document(part.opaque.json), part.opaque.json)
    return None, part.SerializeToString(deterministic=True)


def _opaque_call(item: pb.OpaqueItem) -> CallForm:
    document = _document(item.json)
    wire_id = document.get("call_id") if isinstance(document, dict) else None
    form = _opaque_form(document, item.json)
    return CallForm(item.type, form, wire_id if isinstance(wire_id, str) else "")


def _opaque_form(document: Any, raw: bytes) -> bytes:
    if not isinstance(document, dict):
        return _MARK + raw
    kept = {key: document[key] for key in document if key not in _VOLATILE}
    return _canonical_json(kept, raw)


def _document(raw: bytes) -> Any:
    try:
        return loads(raw)
    except CodecError:
        return None


def _canonical(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {_text(key): _canonical(value[key]) for key in sorted(value)}
    if kind is list:
        return [_canonical(element) for element in value]
    if kind is int and not -_EXACT <= value <= _EXACT:
        return _number(value)
    if kind is float:
        return _number(value)
    return _text(value) if isinstance(value, str) else value


def _number(value: float) -> int | float:
    """The number as JavaScript reads it: a double, written as an integer if it is one."""
    try:
        number = float(value)
    except OverflowError:
        return value
    return int(number) if number.is_integer() else number


def _text(text: str) -> str:
    """JavaScript writes an unpaired surrogate as U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("�", text)


def text_of_arguments(raw: bytes) -> list[str]:
    """The texts among the values of a tool call's arguments."""
    value = _document(raw)
    members = value.values() if isinstance(value, dict) else ()
    return [member for member in members if isinstance(member, str)]
