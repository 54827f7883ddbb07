"""The answer that a verifier can compare with, from what data sets call the answer. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_data.imports.items import RowRefused

_FINAL: Final = re.compile(r"(?:^|\n)\s*####\s*(.+?)\s*$")
_THOUSANDS: Final = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_COMMAND: Final = re.compile(r"\\(?:begin|end)\{[^}]*\}|\\[A-Za-z]+|\$[^$]*\$")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_BOX: Final = "\\boxed{"
# So many words are a text; fewer are one where they end as a sentence, or show a calculation.
_TEXT_WORDS: Final = 12
_SENTENCE_WORDS: Final = 5
_WORKING_WORDS: Final = 3
_LINES_WORDS: Final = 2


def final_answer(value: Any) -> Any:
    """The answer at the end of a worked solution: after `####`, or in its last `\\boxed{}`.

    Anything else stays as it is; a number loses the commas between its thousands.
    """
    if not isinstance(value, str):
        return value
    found = _FINAL.search(value)
    text = found[1] if found else _boxed(value) or value.strip()
    return without_thousands(text)


def without_thousands(text: str) -> str:
    """A number without its thousands separators; other text is unchanged."""
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def refuse_no_answer(value: Any, *, text: bool = False) -> None:
    """Raise RowRefused for an expected answer that is empty, or a text rather than an answer:
    whatever a model says, it would be judged wrong. `text`: its environment compares texts.
    """
    texts = value if isinstance(value, list) else [value]
    for one in texts:
        if one is None or (isinstance(one, str) and not one.strip()):
            raise RowRefused(
                f"expected_answer: is {'null' if one is None else 'empty'}, so no answer can "
                "match this value. Name the column with the answer (--column "
                "expected_answer=NAME), or remove the row"
            )
        if isinstance(one, str) and not text and _is_prose(one):
            raise RowRefused(
                f"expected_answer: {_shown(one)!r} is prose, so no answer can match this text. "
                "Name a column that has only the answer (--column expected_answer=NAME). If a "
                "judge model scores the answers, keep the prose with --keep-prose"
            )


def _is_prose(text: str) -> bool:
    words = len(_WORD.findall(_COMMAND.sub(" ", text)))
    if words >= _TEXT_WORDS or ("\n" in text.strip() and words >= _LINES_WORDS):
        return True
    if text.rstrip().endswith(".") and words >= _SENTENCE_WORDS:
        return True
    return "=" in text and words >= _WORKING_WORDS


def _boxed(text: str) -> str:
    """What the last whole `\\boxed{}` holds; empty where none is closed."""
    begin = text.rfind(_BOX)
    if begin < 0:
        return ""
    depth, start = 1, begin + len(_BOX)
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start:place].strip()
    return ""


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}…"
