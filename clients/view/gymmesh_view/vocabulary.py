"""The text of token ids, from the vocabulary in a tokenizer.json.

This module reads the file without a tokenizer library: the page only needs the texts of single
tokens, and never tokenises. A file has these parts, and only the first three are read:

    model         the vocabulary, and how it writes bytes that are not a character
    added_tokens  additional tokens, such as those of a chat template
    decoder       how the pieces of the vocabulary become text
    the rest      how text becomes tokens
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh_client import UserError
from gymmesh_runtime.text import os_reason
from gymmesh_view.rows import clean

FILE: Final = "tokenizer.json"
_PLACES: Final = (FILE, f"tokenizer/{FILE}")
_MOST_BYTES: Final = 64 << 20
_MOST_ID: Final = 4_000_000
_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_MARK: Final = "\u2581"  # SentencePiece's sign for a space


class _Model(msgspec.Struct):
    type: str = ""
    vocab: dict[str, int] | list[tuple[str, float]] = msgspec.field(default_factory=dict)
    byte_fallback: bool = False
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _Added(msgspec.Struct):
    id: int
    content: str


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []
    decoder: Any = None
    pre_tokenizer: Any = None


class Vocabulary:
    """The pieces of a vocabulary, each as bytes of UTF-8.

    Attributes:
        name: the name of its file, without folders.
    """

    def __init__(self, name: str, pieces: dict[int, bytes]) -> None:
        self.name = name
        self._pieces = pieces

    def texts(self, ids: Iterable[int | None]) -> list[str | None]:
        """The text of each token. None for an id that is not in the vocabulary. If several tokens
        make up a character, the last of these tokens has it. Invalid bytes become U+FFFD.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        found: list[str | None] = []
        for one in ids:
            piece = self._pieces.get(one) if one is not None else None
            if piece is None:
                _end(decoder, found)
                found.append(None)
            else:
                found.append(decoder.decode(piece))
        _end(decoder, found)
        return found


def find_tokenizer(folder: Path) -> Path | None:
    """The tokenizer.json in a folder, or in its subfolder `tokenizer`. None if neither has one."""
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a tokenizer.json, or of a folder that has one.

    Raises:
        UserError: the file cannot be read, has more than 64 MiB, or is of an unknown kind.
    """
    file = (find_tokenizer(path) or path / FILE) if path.is_dir() else path
    try:
        size = file.stat().st_size
        if size > _MOST_BYTES:
            raise UserError(f"{file} has {size >> 20} MiB; the limit is {_MOST_BYTES >> 20} MiB")
        read = msgspec.json.decode(file.read_bytes(), type=_TokenizerFile)
        return Vocabulary(clean(file.name), _pieces(read))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {os_reason(error)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, _Unknown) as error:
        line = " ".join(str(error).split())[:200]
        raise UserError(
            f"{file} cannot be read as a {FILE}: {line}. Pass the {FILE} of the model, or the "
            "folder with this file"
        ) from None


class _Unknown(Exception):
    """The file is a tokenizer's, of a kind that is not known."""


def _end(decoder: codecs.IncrementalDecoder, found: list[str | None]) -> None:
    """End a text: what was half a character is none."""
    rest = decoder.decode(b"", final=True)
    decoder.reset()
    if rest and found:
        found[-1] = (found[-1] or "") + rest


def _pieces(file: _TokenizerFile) -> dict[int, bytes]:
    vocabulary = file.model.vocab
    if isinstance(vocabulary, list):
        pieces = {number: piece for number, (piece, _) in enumerate(vocabulary)}
    else:
        pieces = {number: piece for piece, number in vocabulary.items()}
    if not pieces:
        raise _Unknown("its vocabulary is empty")
    to_bytes = _Decoder(file)
    found = {number: to_bytes(piece) for number, piece in pieces.items()}
    found |= {one.id: one.content.encode("utf-8", "replace") for one in file.added_tokens}
    if not all(0 <= number <= _MOST_ID for number in found):
        raise _Unknown(f"a token id is not between 0 and {_MOST_ID}")
    return found


class _Decoder:
    """Turns a piece of the vocabulary into bytes, as the file's decoder does with one token."""

    def __init__(self, file: _TokenizerFile) -> None:
        steps = _steps(file.decoder)
        kinds = {str(one.get("type")) for one in steps}
        if not steps and any(one.get("type") == "ByteLevel" for one in _steps(file.pre_tokenizer)):
            kinds = {"ByteLevel"}
        if unknown := kinds - _KINDS:
            raise _Unknown(
                f"the decoder has an unknown type: {clean(', '.join(sorted(unknown)))[:80]}"
            )
        self._byte_level = "ByteLevel" in kinds
        self._bytes = "ByteFallback" in kinds or file.model.byte_fallback
        self._replaced = [pair for one in steps if (pair := _replacement(one))]
        self._prefix = self._suffix = ""
        if "WordPiece" in kinds or (not kinds and file.model.type == "WordPiece"):
            self._prefix = file.model.continuing_subword_prefix or "##"
        elif "BPEDecoder" in kinds:
            self._suffix = file.model.end_of_word_suffix or "</w>"

    def __call__(self, piece: str) -> bytes:
        if self._byte_level:
            return b"".join(_BYTES.get(sign) or sign.encode("utf-8", "replace") for sign in piece)
        if self._bytes and (byte := _BYTE.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        for sign, text in self._replaced:
            piece = piece.replace(sign, text)
        if self._prefix:
            begun = piece.removeprefix(self._prefix)
            piece = begun if begun != piece else f" {piece}"
        elif self._suffix and piece.endswith(self._suffix):
            piece = f"{piece.removesuffix(self._suffix)} "
        return piece.encode("utf-8", "replace")


# Strip and Fuse change the text as a whole, and no token's part of it but the first's.
_KINDS: Final = frozenset(
    (
        "ByteLevel",
        "ByteFallback",
        "Metaspace",
        "Replace",
        "WordPiece",
        "BPEDecoder",
        "Strip",
        "Fuse",
    )
)


def _steps(part: Any) -> Sequence[dict[str, Any]]:
    """A decoder's or pre-tokenizer's steps: those of a sequence, or itself."""
    if not isinstance(part, dict):
        return []
    if part.get("type") != "Sequence":
        return [part]
    inner = part.get("decoders", part.get("pretokenizers"))
    return [step for one in inner for step in _steps(one)] if isinstance(inner, list) else []


def _replacement(step: dict[str, Any]) -> tuple[str, str] | None:
    if step.get("type") == "Metaspace":
        sign = step.get("replacement")
        return (sign if isinstance(sign, str) and sign else _WORD_MARK), " "
    pattern = step.get("pattern")
    sign = pattern.get("String") if isinstance(pattern, dict) else None
    text = step.get("content")
    if step.get("type") == "Replace" and isinstance(sign, str) and sign and isinstance(text, str):
        return sign, text
    return None


def _byte_signs() -> dict[str, bytes]:
    """What each character of a byte-level vocabulary stands for: printable bytes for themselves,
    the others for characters from U+0100 on.
    """
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    signs = {chr(byte): bytes([byte]) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in shown]
    return signs | {chr(0x100 + at): bytes([byte]) for at, byte in enumerate(hidden)}


_BYTES: Final = _byte_signs()
