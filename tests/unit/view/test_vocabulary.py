"""Token ids become the text that their tokenizer's file gives them, or a sentence says why not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_view.vocabulary import Vocabulary, find_tokenizer, read_vocabulary
from tests.view.desk import vocabulary, write_tokenizer


def made(tmp_path: Path, model: dict[str, Any], **parts: Any) -> Vocabulary:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": model} | parts))
    return read_vocabulary(path)


def test_bytes_of_a_character_are_read_with_the_last_of_them(tmp_path: Path) -> None:
    read = read_vocabulary(write_tokenizer(tmp_path / "tokenizer.json"))
    known = vocabulary()
    signs = [known[sign] for sign in ("\u00e2", "\u013a", "\u0137")]  # of U+2615, a cup
    ids = [known["The"], known["\u0120ticket"], *signs, known["\u010aIt"], len(known)]
    assert read.texts(ids) == ["The", " ticket", "", "", "\u2615", "\nIt", "<|end|>"]
    assert read.name == "tokenizer.json"


def test_what_is_half_a_character_is_none(tmp_path: Path) -> None:
    read = read_vocabulary(write_tokenizer(tmp_path / "tokenizer.json"))
    known = vocabulary()
    half = known["\u00e2"]
    assert read.texts([half]) == ["\ufffd"]
    assert read.texts([half, known["The"]]) == ["", "\ufffdThe"]
    # An id that is not known ends a text.
    assert read.texts([half, 999_999, known["The"], None]) == ["\ufffd", None, "The", None]
    assert read.texts([]) == []


def test_sentencepiece_with_bytes(tmp_path: Path) -> None:
    pieces = {"\u2581Hello": 0, "\u2581": 1, "<0xE2>": 2, "<0x98>": 3, "<0x95>": 4, "<0x0A>": 5}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]  # fmt: skip
    read = made(
        tmp_path,
        {"type": "BPE", "vocab": pieces, "byte_fallback": True},
        decoder={"type": "Sequence", "decoders": steps},
    )
    assert read.texts([0, 2, 3, 4, 1, 5]) == [" Hello", "", "", "\u2615", " ", "\n"]


def test_unigram_and_metaspace(tmp_path: Path) -> None:
    read = made(
        tmp_path,
        {"type": "Unigram", "vocab": [["<unk>", 0], ["\u2581a", -1.5], ["b", -2]]},
        decoder={"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
    )
    assert read.texts([1, 2, 0, 3]) == [" a", "b", "<unk>", None]


def test_word_pieces(tmp_path: Path) -> None:
    pieces = {"play": 0, "##ing": 1}
    read = made(tmp_path, {"type": "WordPiece", "vocab": pieces}, decoder={"type": "WordPiece"})
    assert read.texts([0, 1]) == [" play", "ing"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be read as a tokenizer.json"),
        ("[1]", "cannot be read as a tokenizer.json"),
        ('{"model": {"type": "BPE", "vocab": {}}}', "its vocabulary is empty"),
        ('{"model": {"vocab": {"a": -1}}}', "a token id is not between 0 and 4000000"),
        (
            '{"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}}',
            "the decoder has an unknown type: CTC",
        ),
        ('{"model": ' + "[" * 100_000 + "]" * 100_000 + "}", "cannot be read as a tokenizer.json"),
    ],
)
def test_what_is_no_vocabulary_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(UserError, match=why):
        read_vocabulary(path)


def test_a_file_is_found_and_is_not_too_large(tmp_path: Path) -> None:
    assert find_tokenizer(tmp_path) is None
    with pytest.raises(UserError, match="cannot be read: no such file"):
        read_vocabulary(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    below = write_tokenizer(tmp_path / "tokenizer" / "tokenizer.json")
    assert find_tokenizer(tmp_path) == below
    assert read_vocabulary(tmp_path).texts([0]) == ["!"]
    large = tmp_path / "large.json"
    large.touch()
    os.truncate(large, 65 << 20)
    with pytest.raises(UserError, match="has 65 MiB; the limit is 64 MiB"):
        read_vocabulary(large)
