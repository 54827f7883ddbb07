r"""Finds the move in what a model wrote. Pure, and linear in the length of the text.

In this order, after anything up to the last ``</think>`` is cut away:

1. The last ``<move>…</move>``. A ``<move>`` without its end tag counts at the end of the text,
   because a stop sequence may have cut the tag off.
2. The content of the last ``\boxed{…}``.
3. A last line ``Move: …``.
4. The last line itself, when it is short enough to be a move.

The text around a move is ignored, and a move inside a sentence is never read.
"""

from __future__ import annotations

import re
import unicodedata

# Characters of the longest move; a longer one is a sentence.
LONGEST = 40
_OPEN = re.compile(r"<\s{0,3}move\s{0,3}>", re.IGNORECASE)
_CLOSE = re.compile(r"<\s{0,3}/\s{0,3}move\s{0,3}>", re.IGNORECASE)
_BOX = re.compile(r"\\boxed\s{0,3}\{([^{}]{0,60})\}")
_LABEL = re.compile(r"(?:final |my |next )?move(?: is)? ?[:=] ?", re.IGNORECASE)
_AROUND = " \t\r\n*_`\"'()[]{}<>.!$~"


def find_move(text: str) -> str | None:
    """The move in lower case with single spaces; None if the text has no move."""
    text = text[text.rfind("</think>") + len("</think>") :] if "</think>" in text else text
    tagged = _tagged(text)
    if tagged is not None:
        return _plain(tagged)
    boxes = _BOX.findall(text)
    if boxes:
        return _plain(boxes[-1])
    line = text.rstrip()[-300:].rpartition("\n")[2].strip(_AROUND)
    labelled = _LABEL.match(line)
    return _plain(line[labelled.end() :] if labelled else line)


def _tagged(text: str) -> str | None:
    """The content of the last tag; None where there is no tag."""
    ends = [tag.end() for tag in _OPEN.finditer(text)]
    if not ends:
        return None
    rest = text[ends[-1] :]
    close = _CLOSE.search(rest)
    if close is not None:
        return rest[: close.start()]
    rest = rest.strip()
    # More than a move after an open tag: it only spoke of the tag.
    return None if "\n" in rest or len(rest) > LONGEST else rest


def _plain(move: str) -> str | None:
    if len(move) > 4 * LONGEST:
        return None
    move = unicodedata.normalize("NFKC", move).casefold()
    move = " ".join(move.strip(_AROUND).split())
    return move if 0 < len(move) <= LONGEST else None
