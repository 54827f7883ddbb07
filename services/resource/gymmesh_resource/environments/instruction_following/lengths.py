"""Instructions about lengths: words, sentences, paragraphs, letters."""

from __future__ import annotations

import re

from gymmesh_resource.environments.instruction_following.language import (
    sentence_count,
    split_sentences,
    tokens,
)
from gymmesh_resource.environments.instruction_following.registry import (
    LESS_THAN,
    count,
    instruction,
    relation,
    word,
)

_WORD = re.compile(r"\w+")
# Three asterisks by themselves: those around a word are emphasis.
_DIVIDER = re.compile(r"(?<!\S)\*\*\*(?!\S)")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
# Around a first word: quotes, and the marks of Markdown for emphasis, headings, quotes and code.
_MARKS = "'\"*_#>`~([{“”‘’«»„ \t"
_LOWER_WORD = re.compile(r"\b[a-z]+\b")
_LATIN = re.compile(r"[a-zA-Z]")


def holds(number: int, relation: str, limit: int) -> bool:
    """Whether a number has this relation to a limit."""
    return number < limit if relation == LESS_THAN else number >= limit


@instruction("length_constraints:number_words", num_words=count, relation=relation)
def number_words(text: str, num_words: int, relation: str) -> bool:
    """Words are runs of letters, digits and underscores."""
    return holds(sum(1 for _ in _WORD.finditer(text)), relation, num_words)


@instruction("length_constraints:number_sentences", num_sentences=count, relation=relation)
def number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    """Sentences are those of the Punkt model."""
    return holds(sentence_count(text), relation, num_sentences)


def _written(paragraphs: list[str]) -> list[str]:
    """The paragraphs that are not blank; a rule or a blank line too many makes none."""
    return [paragraph for paragraph in paragraphs if paragraph.strip()]


@instruction("length_constraints:number_paragraphs", num_paragraphs=count)
def number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Paragraphs are divided by three asterisks."""
    return len(_written(_DIVIDER.split(text))) == num_paragraphs


@instruction("paragraphs:paragraphs")
def two_divided_paragraphs(text: str) -> bool:
    """Exactly two paragraphs, divided by three asterisks."""
    return len(_written(_DIVIDER.split(text))) == 2


@instruction("paragraphs:paragraphs2")
def two_spaced_paragraphs(text: str) -> bool:
    """Exactly two paragraphs, with a blank line between them."""
    return len(_spaced(text)) == 2


def _spaced(text: str) -> list[str]:
    """The paragraphs between blank lines."""
    return _written(_BLANK_LINES.split(text.replace("\r\n", "\n")))


@instruction(
    "length_constraints:nth_paragraph_first_word",
    num_paragraphs=count,
    nth_paragraph=count,
    first_word=word,
)
def nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Case and marks around the word are ignored; or the word up to its first mark is compared."""
    paragraphs = _spaced(text)
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    found = paragraphs[nth_paragraph - 1].lstrip().lstrip(_MARKS).split(maxsplit=1)
    if not found:
        return False
    wanted = first_word.lower()
    whole = found[0].lower().rstrip(_MARKS + ".,;:?!)]}…")
    return wanted in (whole, re.split(r"[.,;:?!'’\"*_]", whole, maxsplit=1)[0])


@instruction("count:counting_composition", n_sent=count, n_words=count)
def counting_composition(text: str, n_sent: int, n_words: int) -> bool:
    """Three paragraphs with this many sentences of this many words each. Marks count as words."""
    paragraphs = _written(_DIVIDER.split(text))
    if len(paragraphs) != 3:
        return False
    for paragraph in paragraphs:
        sentences = split_sentences(paragraph)
        if len(sentences) != n_sent:
            return False
        if any(len(tokens(sentence)) != n_words for sentence in sentences):
            return False
    return True


@instruction("count:lowercase_counting", N=count)
def lowercase_words(text: str, N: int) -> bool:  # as task rows spell it
    """At most this number of words in lower case, counted with repetitions."""
    return sum(1 for _ in _LOWER_WORD.finditer(text)) <= N


@instruction("letters:letter_counting", N=count, relation=relation)
def letter_count(text: str, N: int, relation: str) -> bool:
    """Latin letters without diacritics are counted."""
    return holds(sum(1 for _ in _LATIN.finditer(text)), relation, N)


@instruction("count:count_unique")
def unique_words(text: str) -> bool:
    """No word or punctuation mark occurs twice. A word in another case is another word."""
    found = tokens(text)
    return len(found) == len(set(found))


@instruction(
    "change_case:capital_word_frequency", capital_frequency=count, capital_relation=relation
)
def capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """Words in capitals; hyphenated ones are one word."""
    number = sum(1 for token in tokens(text) if token.isupper())
    return holds(number, capital_relation, capital_frequency)
