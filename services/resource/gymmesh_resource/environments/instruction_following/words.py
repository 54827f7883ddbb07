"""Instructions about words and letters: which, how often, and where."""

from __future__ import annotations

import re
from itertools import pairwise

from gymmesh_resource.environments.instruction_following.language import split_sentences, tokens
from gymmesh_resource.environments.instruction_following.languages import (
    is_in,
    language_code,
    may_be_english,
)
from gymmesh_resource.environments.instruction_following.lengths import holds
from gymmesh_resource.environments.instruction_following.registry import (
    count,
    instruction,
    letter,
    relation,
    texts,
    word,
)

_NOT_IN_WORDS = re.compile(r"[^\w\s]")


def _occurrences(phrase: str, text: str) -> int:
    """How often a phrase occurs, in other words too, case aside."""
    return sum(1 for _ in re.finditer(re.escape(phrase.strip()), text, re.IGNORECASE))


@instruction("keywords:existence", keywords=texts)
def keywords_exist(text: str, keywords: list[str]) -> bool:
    """Each keyword occurs, in other words too."""
    return all(re.search(re.escape(keyword), text, re.IGNORECASE) for keyword in keywords)


@instruction(
    "keywords:frequency",
    "keywords:word_count_different_numbers",
    keyword=word,
    frequency=count,
    relation=relation,
)
def keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    """The keyword occurs the required number of times."""
    return holds(_occurrences(keyword, text), relation, frequency)


@instruction("keywords:word_once", keyword=word)
def keyword_once(text: str, keyword: str) -> bool:
    """The keyword occurs exactly once."""
    return _occurrences(keyword, text) == 1


@instruction("count:count_increment_word", keyword1=word, keyword2=word)
def keywords_once_and_twice(text: str, keyword1: str, keyword2: str) -> bool:
    """One keyword occurs once, another one twice."""
    return _occurrences(keyword1, text) == 1 and _occurrences(keyword2, text) == 2


@instruction("keywords:forbidden_words", forbidden_words=texts)
def forbidden_words(text: str, forbidden_words: list[str]) -> bool:
    """None of the words is in the text as a whole word."""
    return not any(
        re.search(rf"(?<!\w){re.escape(entry)}(?!\w)", text, re.IGNORECASE)
        for entry in forbidden_words
    )


@instruction("keywords:exclude_word_harder", keyword=word)
def excluded_word(text: str, keyword: str) -> bool:
    """The word does not occur between two spaces."""
    return f" {keyword} " not in text


@instruction(
    "keywords:letter_frequency",
    "letters:letter_counting2",
    letter=letter,
    let_frequency=count,
    let_relation=relation,
)
def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """The letter occurs the required number of times, ignoring case."""
    return holds(text.lower().count(letter), let_relation, let_frequency)


@instruction("keywords:palindrome")
def palindrome(text: str) -> bool:
    """A word reads the same backwards; a single letter does, too."""
    return any(found == found[::-1] for found in text.split())


@instruction("keywords:keyword_specific_position", keyword=word, n=count, m=count)
def keyword_at(text: str, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence is the keyword, capitals included."""
    sentences = split_sentences(text)
    if not (1 <= n <= len(sentences) and m >= 1):
        return False
    found = tokens(sentences[n - 1])
    return m <= len(found) and found[m - 1] == keyword


@instruction("keywords:start_end")
def same_start_and_end(text: str) -> bool:
    """The first word is also the last word, with nothing after it."""
    found = tokens(text)
    return len(found) >= 2 and found[0].lower() == found[-1].lower()


@instruction("keywords:no_adjacent_consecutive")
def no_consecutive_letters(text: str) -> bool:
    """No word starts with the letter that follows the one its predecessor starts with."""
    starts = [found[0].lower() for found in text.split()]
    if len(starts) > 1 and any(len(start) != 1 for start in starts):
        return False
    return all(ord(after) - ord(start) != 1 for start, after in pairwise(starts))


@instruction("first_word:first_word_answer", first_word=word)
def first_word(text: str, first_word: str) -> bool:
    """The response starts with the word, and a space or nothing after it."""
    return text.split(maxsplit=1)[0].lower() == first_word.lower() if text.strip() else False


@instruction("first_word:first_word_sent", first_word=word)
def first_word_of_sentences(text: str, first_word: str) -> bool:
    """Each sentence starts with the word."""
    return all(
        sentence and sentence.split(maxsplit=1)[0].lower() == first_word.lower()
        for sentence in split_sentences(text)
    )


def _last_word(text: str) -> str:
    words = text.rsplit(maxsplit=1)
    return _NOT_IN_WORDS.sub("", words[-1]).lower() if words else ""


@instruction("last_word:last_word_answer", last_word=word)
def last_word(text: str, last_word: str) -> bool:
    """The response ends with the word, ignoring punctuation."""
    return _last_word(text) == last_word.lower()


@instruction("last_word:last_word_sent", last_word=word)
def last_word_of_sentences(text: str, last_word: str) -> bool:
    """Each sentence ends with the word, ignoring punctuation."""
    return all(
        sentence and _last_word(sentence) == last_word.lower() for sentence in split_sentences(text)
    )


@instruction("language:response_language", language=language_code)
def response_language(text: str, language: str) -> bool:
    """The language is the wanted one; a text without letters is in none."""
    return is_in(text, language)


@instruction("change_case:english_capital")
def english_capitals(text: str) -> bool:
    """All letters are capitals, and nothing says that the text is not English."""
    return text.isupper() and may_be_english(text)


@instruction("change_case:english_lowercase")
def english_lower_case(text: str) -> bool:
    """No letter is a capital, and nothing says that the text is not English."""
    return text.islower() and may_be_english(text)
