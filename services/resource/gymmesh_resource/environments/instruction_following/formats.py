"""Instructions about form: lists, titles, sections, quotations, copies, punctuation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from gymmesh_resource.environments.instruction_following.language import split_sentences
from gymmesh_resource.environments.instruction_following.registry import (
    count,
    instruction,
    text,
    word,
)

# Emphasis as Markdown has it: nothing blank beside the marks, inside.
_HIGHLIGHT = re.compile(r"(?<!\*)(\*{1,3})(?=[^\s*])[^\n*]*(?<=[^\s*])\1(?!\*)")
_BULLET = re.compile(r"[^\S\n]*([*+-])([^\S\n]*)([^\n]*)")
_RULE = re.compile(r"([*-])(?:[^\S\n]*\1){2,}")
_POSTSCRIPTS: Final = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
OPTIONS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES: Final = ("```json", "```Json", "```JSON", "```")
_RESPONSES: Final = "******"
_AROUND: Final = ' \t\r\n"“”*_`'
_QUOTES: Final = ('""', "“”", "„“", "«»", "””")


@instruction("detectable_content:number_placeholders", num_placeholders=count)
def placeholders(text: str, num_placeholders: int) -> bool:
    """At least this number of pairs of square brackets, each within a line and with text inside."""
    return sum(1 for inside in bracketed(text) if inside.strip()) >= num_placeholders


def bracketed(text: str) -> Iterator[str]:
    """What is in each pair of square brackets, without its line's end."""
    for line in text.split("\n"):
        opening = line.find("[")
        while opening >= 0 and (closing := line.find("]", opening)) >= 0:
            yield line[opening + 1 : closing]
            opening = line.find("[", closing)


@instruction("detectable_content:postscript", postscript_marker=word)
def postscript(text: str, postscript_marker: str) -> bool:
    """The marker occurs, ignoring case; "P.S." and "P.P.S" may have spaces inside."""
    pattern = _POSTSCRIPTS.get(postscript_marker)
    if pattern is None:
        return postscript_marker.lower() in text.lower()
    return pattern.search(text.lower()) is not None


@instruction("detectable_format:number_bullet_lists", num_bullets=count)
def bullets(text: str, num_bullets: int) -> bool:
    """Exactly this many Markdown bullets. A rule, emphasis or a negative number is not a bullet."""
    return sum(1 for line in text.splitlines() if _is_bullet(line)) == num_bullets


def _is_bullet(line: str) -> bool:
    """Whether a line is a bullet with a text. The space after the mark may be missing."""
    found = _BULLET.fullmatch(line)
    if found is None or not found[3].strip() or _RULE.fullmatch(line.strip()):
        return False
    mark, space, item = found.groups()
    if space:
        return True
    return mark != "+" and mark not in item and not item[0].isdigit()


@instruction("detectable_format:number_highlighted_sections", num_highlights=count)
def highlights(text: str, num_highlights: int) -> bool:
    """At least this number of passages between asterisks, up to three on each side."""
    return sum(1 for _ in _HIGHLIGHT.finditer(text)) >= num_highlights


@instruction("detectable_format:multiple_sections", section_spliter=word, num_sections=count)
def sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """The marker with a number occurs at least this number of times."""
    marker = re.compile(re.escape(section_spliter) + r"\s?\d+")
    return sum(1 for _ in marker.finditer(text)) >= num_sections


@instruction("detectable_format:title")
def title(text: str) -> bool:
    """A line with something between double angular brackets."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


@instruction("detectable_format:json_format")
def json_format(text: str) -> bool:
    """All of it is JSON as RFC 8259 has it, possibly in a Markdown fence."""
    try:
        # Numbers as text: one may be too long for Python. NaN and Infinity are no JSON.
        json.loads(unfenced(text), parse_constant=_refused, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def unfenced(text: str) -> str:
    """A text without the Markdown fence around it, which IFEval removes in the same way."""
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    return text.removesuffix("```").strip()


@instruction("detectable_format:constrained_response")
def constrained_response(text: str) -> bool:
    """One of IFEval's three answers occurs, and no other one."""
    return sum(option in text for option in OPTIONS) == 1


@instruction("detectable_format:sentence_hyphens")
def hyphenated_sentences(text: str) -> bool:
    """Hyphens without spaces beside them divide the response into sentences."""
    sentences = split_sentences(text.replace("-", " "))
    parts = zip(text.split("-"), sentences, strict=False)
    return all(part == part.strip() == sentence for part, sentence in parts)


@instruction("detectable_format:square_brackets")
def square_brackets(text: str) -> bool:
    """Each word is in square brackets."""
    return all(found.startswith("[") and found.endswith("]") for found in text.split())


@instruction("detectable_format:bigram_wrapping")
def wrapped_pairs(text: str) -> bool:
    """Words are in pairs in double angular brackets; a last single word may be without brackets."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


@instruction("combination:two_responses")
def two_responses(text: str) -> bool:
    """Two different responses, with six asterisks between them."""
    parts = [part.strip() for part in text.split(_RESPONSES)]
    if not all(parts[1:-1]):
        return False
    written = [part for part in parts if part]
    return len(written) == 2 and written[0] != written[1]


def _plain(text: str) -> str:
    return text.strip().lower()


@instruction("combination:repeat_prompt", prompt_to_repeat=text)
def repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The response starts with the prompt, ignoring case."""
    return _plain(text).startswith(_plain(prompt_to_repeat))


@instruction("copy:copy", "copy:copying_simple", prompt_to_repeat=text)
def copies_prompt(text: str, prompt_to_repeat: str) -> bool:
    """The response is the prompt, ignoring case."""
    return _plain(text) == _plain(prompt_to_repeat)


@instruction("copy:copying_multiple", prompt_to_repeat=text, N=count)
def copies_prompt_often(text: str, prompt_to_repeat: str, N: int) -> bool:  # as in rows
    """The response is the prompt this number of times, with six asterisks between the copies."""
    parts = text.split(_RESPONSES)
    return len(parts) == N and all(_plain(part) == _plain(prompt_to_repeat) for part in parts)


@instruction("new:copy_span_idx", prompt_to_repeat=text, n_start=count, n_end=count)
def copies_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The response is the prompt's characters from one index to before the other."""
    return _plain(text) == _plain(prompt_to_repeat[n_start:n_end])


@instruction("copy:repeat_phrase", phrase=word, small_n=count)
def repeats_phrase(text: str, phrase: str, small_n: int) -> bool:
    """The phrase so often, with one word changed: in the last of them, and at most one in each."""
    wanted = phrase.split()
    found = [part.split() for part in _between(text, wanted[0], wanted[-1])]
    if len(found) != small_n or not found or any(len(part) != len(wanted) for part in found):
        return False
    changes = [
        sum(1 for new, old in zip(part, wanted, strict=True) if new != old) for part in found
    ]
    return max(changes) <= 1 and changes[-1] == 1


def _between(text: str, first: str, last: str) -> list[str]:
    """The shortest passages of a line from one word to the other, from left to right."""
    found: list[str] = []
    for line in text.split("\n"):
        start = line.find(f"{first} ")
        while start >= 0 and (end := line.find(f" {last}", start + len(first) + 1)) >= 0:
            end += 1 + len(last)
            found.append(line[start:end])
            start = line.find(f"{first} ", end)
    return found


@instruction("startend:end_checker", end_phrase=text)
def ends_with(text: str, end_phrase: str) -> bool:
    """The response ends with the phrase, not inside a longer word. Case is ignored, and so are
    quotes or emphasis around the phrase.
    """
    said, phrase = text.rstrip(_AROUND).lower(), end_phrase.strip().rstrip(_AROUND).lower()
    if not phrase or not said.endswith(phrase):
        return False
    before = said[-len(phrase) - 1 : -len(phrase)]
    return not (before.isalnum() and phrase[0].isalnum())


@instruction("startend:quotation")
def quoted(text: str) -> bool:
    """The whole response is in double quotes, straight or typographic."""
    text = text.strip()
    inside = text[1:-1].strip()
    return bool(inside) and text[0] + text[-1] in _QUOTES


@instruction("punctuation:no_comma")
def no_comma(text: str) -> bool:
    """No comma at all."""
    return "," not in text


@instruction("punctuation:punctuation_dot")
def no_dot(text: str) -> bool:
    """No dot at all."""
    return "." not in text


@instruction("punctuation:punctuation_exclamation")
def no_exclamation_mark(text: str) -> bool:
    """No exclamation mark at all."""
    return "!" not in text
