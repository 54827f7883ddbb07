r"""Where a response has its answer: in its last ``\boxed{}``, else at the end of its text. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from gymmesh_resource.environments._claims import gives
from gymmesh_resource.environments._latex import BOX, boxes

# Characters of a response without a box that are searched for an answer: its end.
TAIL = 10_000
_SHORT, _MOST_BOXES = 200, 50
# Numbers behind "the answer is" of which the first that is given counts: not 71 but 72.
_MOST_NUMBERS = 5
# What joins neighbouring boxes into one list; anything else makes the last box a correction.
_JOINS = re.compile(
    r"(?:[\s$,;&.]|\\[()\[\],;]|\\quad|(?:\\text\s?\{\s?)?\b(?:and|or)\b(?:\s?\})?)*", re.IGNORECASE
)
_PHRASE = re.compile(r"answers?\**\s*(?:is|are|:|=)\**:?\s*(?P<rest>[^\n]+)", re.IGNORECASE)
_MATHEMATICS = re.compile(
    r"\$\$(?P<a>[^$]{1,2000})\$\$|\$(?P<b>[^$\n]{1,2000})\$"
    r"|\\\((?P<c>.{1,2000}?)\\\)|\\\[(?P<d>.{1,2000}?)\\\]",
    re.DOTALL,
)
_NUMBER = re.compile(
    "[-+\N{MINUS SIGN}]?[$\N{EURO SIGN}\N{POUND SIGN}]?"
    r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?/\s?\d+)?"
    r"(?:\s?\\?%|\s?percent|(?:\s(?:hundred|thousand|million|billion|trillion))+)?"
)


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """The possible answers, the likeliest first, and their source in the response.

    cut: characters of the response that were not searched.
    """

    texts: tuple[str, ...]
    source: Literal["boxed", "text", "none"]
    cut: int = 0


def find_answer(text: str) -> FoundAnswer:
    """The answer's text. An empty last box is no answer, and text does not mend it."""
    boxed = last_boxes(text)
    if boxed is not None:
        return FoundAnswer((boxed,) if boxed.strip() else (), "boxed")
    candidates = tuple(dict.fromkeys(_unboxed(text[-TAIL:])))
    return FoundAnswer(candidates, "text" if candidates else "none", max(0, len(text) - TAIL))


def last_box(text: str) -> str | None:
    """The content of the last complete box, unchanged; None if there is none."""
    last = deque(boxes(text), maxlen=1)
    return text[last[0]] if last else None


def last_boxes(text: str) -> str | None:
    """The content of the last box, as a list with the boxes joined to it; None without a box."""
    outer: deque[slice] = deque(maxlen=_MOST_BOXES)
    for box in boxes(text):
        while outer and outer[-1].start > box.start:
            outer.pop()
        outer.append(box)
    if not outer:
        return None
    group = [outer.pop()]
    while outer and _JOINS.fullmatch(text, outer[-1].stop + 1, group[0].start - len(BOX)):
        group.insert(0, outer.pop())
    contents = list(dict.fromkeys(text[box].strip() for box in group))
    return ", ".join(contents)


def _unboxed(text: str) -> list[str]:
    text = text.replace("\\fbox", "\\framed")  # a frame is no box, and what it holds no answer
    opened = text.find(BOX)
    text = (text[:opened] if opened >= 0 else text).strip()
    texts: list[str] = []
    if text and len(text) <= _SHORT and "\n" not in text and "\\framed" not in text:
        texts.append(text)
    segments = list(_MATHEMATICS.finditer(text))
    phrase = deque(_PHRASE.finditer(text), maxlen=1)
    if phrase:
        start, rest = phrase[0].start("rest"), phrase[0]["rest"].strip()
        within = [one for one in segments if one.start() >= start][:1]
        if within and not gives(text, *within[0].span()):
            return texts
        texts += map(_content, within)
        texts += [rest] if gives(text, start, start + len(rest)) else []
        numbers = islice(_NUMBER.finditer(text, start, start + len(rest)), _MOST_NUMBERS)
        given = next((one for one in numbers if gives(text, *one.span())), None)
        texts += [given.group()] if given else []
        return texts
    last = deque(_NUMBER.finditer(text), maxlen=1)
    if segments and (not last or segments[-1].end() >= last[0].end()):
        texts += [_content(segments[-1])] if gives(text, *segments[-1].span()) else []
    elif last and "\\framed" not in text and gives(text, *last[0].span()):
        texts.append(last[0].group())
    return texts


def _content(segment: re.Match[str]) -> str:
    return next(part for part in segment.groups() if part is not None)
