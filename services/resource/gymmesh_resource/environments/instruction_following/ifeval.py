"""IFEval's own checks, for instructions whose default check differs.

`compat: ifeval` uses these checks. Each docstring names the difference.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import Final

from gymmesh_resource.environments.instruction_following.formats import OPTIONS, bracketed, unfenced
from gymmesh_resource.environments.instruction_following.language import (
    language_of,
    split_sentences,
    tokens,
)
from gymmesh_resource.environments.instruction_following.registry import (
    count,
    reference,
    text,
    word,
)

_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
_MARKS: Final = re.compile(r"[.,?!'\"]")


def _parts(paragraphs: list[str]) -> int | None:
    """How many paragraphs there are, of which the outermost may be blank; None if others are."""
    if any(not paragraph.strip() for paragraph in paragraphs[1:-1]):
        return None
    ends = {0, len(paragraphs) - 1}
    return len(paragraphs) - sum(1 for index in ends if not paragraphs[index].strip())


@reference("length_constraints:number_paragraphs", num_paragraphs=count)
def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """A blank paragraph inside fails; so does emphasis by three asterisks, which divides."""
    return _parts(_DIVIDER.split(text)) == num_paragraphs


@reference("paragraphs:paragraphs")
def two_divided_paragraphs(text: str) -> bool:
    """As `number_paragraphs`."""
    return _parts(_DIVIDER.split(text)) == 2


@reference("paragraphs:paragraphs2")
def two_spaced_paragraphs(text: str) -> bool:
    """Two line breaks too many between the paragraphs fail."""
    return _parts(text.split("\n\n")) == 2


@reference(
    "length_constraints:nth_paragraph_first_word",
    num_paragraphs=count,
    nth_paragraph=count,
    first_word=word,
)
def nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Blank paragraphs do not count, but take a place; only quotes may stand before the word."""
    paragraphs = text.split("\n\n")
    written = sum(1 for paragraph in paragraphs if paragraph.strip())
    if written != num_paragraphs or not 1 <= nth_paragraph <= written:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    found = words[0].lstrip("'").lstrip('"')
    return _MARKS.split(found, maxsplit=1)[0].lower() == first_word.lower()


@reference("count:counting_composition", n_sent=count, n_words=count)
def counting_composition(text: str, n_sent: int, n_words: int) -> bool:
    """A blank paragraph counts as one."""
    paragraphs = _DIVIDER.split(text)
    if len(paragraphs) != 3:
        return False
    for paragraph in paragraphs:
        sentences = split_sentences(paragraph)
        if len(sentences) != n_sent or not paragraph.strip():
            return False
        if any(len(tokens(sentence)) != n_words for sentence in sentences):
            return False
    return True


@reference("detectable_content:number_placeholders", num_placeholders=count)
def placeholders(text: str, num_placeholders: int) -> bool:
    """Empty brackets count."""
    return sum(1 for _ in bracketed(text)) >= num_placeholders


@reference("detectable_format:number_bullet_lists", num_bullets=count)
def bullets(text: str, num_bullets: int) -> bool:
    """Any line that starts with a hyphen or with one asterisk: rules and emphasis, too."""
    return _bullets(text, "*") + _bullets(text, "-") == num_bullets


def _bullets(text: str, mark: str) -> int:
    """Lines that start with the mark. A lone asterisk takes the next line as its own, and two
    asterisks are no bullet.
    """
    found, position = 0, 0
    while position < len(text):
        start = position
        while start < len(text) and text[start].isspace():
            start += 1
        after = start + 1
        following = text[after : after + 1]
        if text.startswith(mark, start) and (mark == "-" or following not in ("", "*")):
            found += 1
            start = after + (mark == "*")
        end = text.find("\n", start)
        position = len(text) if end < 0 else end + 1
    return found


@reference("detectable_format:number_highlighted_sections", num_highlights=count)
def highlights(text: str, num_highlights: int) -> bool:
    """What stands between two bullets' asterisks in a line counts, and triple emphasis twice."""
    matches = chain(_HIGHLIGHT.finditer(text), _DOUBLE_HIGHLIGHT.finditer(text))
    return sum(1 for match in matches if match.group(1).strip()) >= num_highlights


@reference("detectable_format:json_format")
def json_format(text: str) -> bool:
    """NaN and Infinity count as JSON, and numbers of over 4,300 digits do not."""
    try:
        json.loads(unfenced(text))
    except (ValueError, RecursionError):
        return False
    return True


@reference("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    """All three answers at a time are one of them, too."""
    return any(option in text for option in OPTIONS)


@reference("startend:quotation")
def quoted(text: str) -> bool:
    """Two quotation marks with nothing between them count."""
    text = text.strip()
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


@reference("startend:end_checker", end_phrase=text)
def ends_with(text: str, end_phrase: str) -> bool:
    """The phrase may be the end of a longer word; after it, quotes may stand but no emphasis."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@reference("language:response_language", language=text)
def response_language(text: str, language: str) -> bool:
    """By the detector alone; a text in which it finds no language passes, and a code that it does
    not know fails every response.
    """
    found = language_of(text)
    return found is None or found == language or found.partition("-")[0] == language


@reference("change_case:english_capital")
def english_capitals(text: str) -> bool:
    """The detector is asked about capitals, which it seldom knows, and about a few words, too."""
    return text.isupper() and language_of(text) in ("en", None)


@reference("change_case:english_lowercase")
def english_lower_case(text: str) -> bool:
    """The detector is asked about a few words, too."""
    return text.islower() and language_of(text) in ("en", None)
