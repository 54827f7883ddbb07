"""Whether an answer is right, and whether its sources were found. Pure.

Answers are compared as in question answering over documents (SQuAD's exact match and F1): case,
articles and punctuation make no difference. Unlike there, signs, decimal points and per cent and
currency signs do: -5, 5 and 5% are three answers. A number is the same however it is written.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from gymmesh_resource.environments._plain_text import plain
from gymmesh_resource.environments._quantities import quantity
from gymmesh_resource.rollout import ToolCall

AnswerMatch = Literal["exact", "normalized", "f1"]
_ARTICLES = frozenset(("a", "an", "the"))
_LENGTH = 20_000
_LINE = re.compile(r"[*_# ]*(?:final )?answer[*_ ]*[:：][*_ ]*(.*)", re.IGNORECASE)
_GROUPED = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
# A number with its sign and units, a character of a script without spaces, or a word.
_TOKEN = re.compile(
    r"(?<![\w.])[+-]?[0-9]+(?:[.,:/][0-9]+)*"
    r"|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"|[^\W_]+|[%\u2030\u00b0$\u00a2-\u00a5\u20a0-\u20c0]"
)
_MINUS = str.maketrans("\u2212\u2012\u2013\ufe63\uff0d", "-----")


def extract_answer(text: str) -> str:
    """The answer in a message.

    The last `<answer>…</answer>`, else what follows `Answer:` in the last line that begins so
    (the next line where that is empty), else the whole message.
    """
    head, closed, _ = text.rpartition("</answer>")
    opening = head.rfind("<answer>") if closed else -1
    if opening >= 0:
        return head[opening + len("<answer>") :].strip()
    lines = text[-_LENGTH:].splitlines()
    for number in range(len(lines) - 1, -1, -1):
        found = _LINE.match(lines[number])
        if found:
            rest = found[1] or next(filter(str.strip, lines[number + 1 :]), "")
            return rest.strip().strip("*_").strip()
    return text.strip()


def normalised(text: str) -> list[str]:
    """The words of an answer that count, in order."""
    text = unicodedata.normalize("NFKC", text[:_LENGTH].translate(_MINUS)).translate(_MINUS)
    text = _GROUPED.sub("", text.casefold())
    # An apostrophe belongs to its word.
    text = re.sub(r"(?<=\w)['\u2019](?=\w)", "", text)
    return [word for word in _TOKEN.findall(text) if word not in _ARTICLES]


def f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, with their number; 0.0 to 1.0."""
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))


def match_answer(answer: str, accepted: Sequence[str], how: AnswerMatch) -> float:
    """How well the answer agrees with the best of the accepted ones, 0.0 to 1.0."""
    if not answer.strip():
        return 0.0
    if how == "exact":
        return float(answer.strip() in {one.strip() for one in accepted})
    given = normalised(answer)
    wanted = [normalised(one) for one in accepted]
    # An answer of signs alone has no words: those are compared as they are.
    if not given or not all(wanted):
        return float(answer.strip().casefold() in {one.strip().casefold() for one in accepted})
    if how == "normalized":
        number = quantity(plain(answer[:_LENGTH]))
        same = number is not None and any(quantity(plain(one)) == number for one in accepted)
        return float(same or given in wanted)
    return max(f1(given, one) for one in wanted)


def found_documents(calls: Iterable[ToolCall]) -> tuple[set[str], set[str]]:
    """Ids and addresses of the found and the fetched documents, by the tools' answers."""
    seen: set[str] = set()
    fetched: set[str] = set()
    for call in calls:
        answer = _json(call.output)
        if call.name == "search" and isinstance(answer.get("results"), list):
            for hit in answer["results"]:
                seen |= _names(hit)
        elif call.name == "fetch" and "text" in answer:
            fetched |= _names(answer)
    return seen, fetched


def recall(relevant: Sequence[str], found: set[str], how: Literal["any", "share"]) -> float:
    """Whether any relevant document was found, or the share of them that was."""
    hits = sum(one in found for one in dict.fromkeys(relevant))
    return float(hits > 0) if how == "any" else hits / len(set(relevant))


def _json(output: str | None) -> dict[str, Any]:
    try:
        answer = json.loads(output or "")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _names(document: object) -> set[str]:
    if not isinstance(document, dict):
        return set()
    names = (document.get("id"), document.get("url"))
    return {name for name in names if isinstance(name, str) and name}
