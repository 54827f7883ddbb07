"""Whether a sentence affirms one option, by its letter or its own text. Pure, linear in the text.

The rule is positive. A sentence names an option where

- all words before it are of a frame such as "I think the best answer is"; before an option's text
  a noun may stand, too ("the planet Mars");
- what follows is nothing, a reason ("because …", ". Mars is red"), an affirmation ("is right") or
  a denial of others ("not A", "rather than A").

A clause about other options may come first ("not A but B", "A is wrong, so B"). Every other
sentence names nothing: a list of the ways to deny something is never complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# What stands for an option in a sentence: the one that is looked at, and any other.
_ONE: Final = "\ue000"
_OTHER: Final = "\ue001"
_PRIVATE: Final = {ord(_ONE): None, ord(_OTHER): None}

# Words that lead to an answer, and that don't deny it in any order.
_FRAME_WORDS: Final = """
    a an the this that it its it's that's here here's there my our your me one i i'm i'd i'll i've
    we we're of on to for with in at is are be been am was has have must should would will do let
    think thinking believe say saying guess choose choosing chose chosen pick picking picked
    select selecting selected go going went take taking answer answers answered answering conclude
    suppose know prefer opt get got find found feel reckon consider considering conclusion support
    supports supported supporting suggest suggests indicate indicates point points show shows mean
    means best right correct proper final good better fitting fits matches matching closest
    nearest only left remaining likely most more clear clearly obvious obviously sure certain
    confident certainly definitely surely probably presumably maybe perhaps possibly simply indeed
    therefore so thus hence then overall finally quite very pretty well evidence facts both lot
    everything option options choice letter solution match candidate alternative statement result
    response selection called named yes
"""
_FRAME: Final = frozenset(_FRAME_WORDS.split())
# Denials that affirm; they are left out before all else.
_CERTAINLY = re.compile(
    r"\b(?:(?:without|beyond|no) (?:a |any )?doubt|(?:by|after) (?:process of )?elimination)\b"
)
# Words in front of a noun.
_ARTICLES: Final = frozenset(
    ("the", "a", "an", "best", "closest", "nearest", "right", "correct", "only", "likely", "final")
)
# Words beside a noun that say it is another one.
_TURNING = re.compile(
    r"(?:wrong|false|other|opposite|contrary|reverse|inverse|converse|antonym|fake|bad|worst|worse"
    r"|last|least|former|previous|only|[a-z]+(?:ed|ble|less|ly)"
    r"|(?:un|im|in|ir|il|dis|non|mis)[a-z]+(?:al|ful|ive|ate|rect|ous))\Z"
)
_QUESTION = re.compile(r"\W*(?:is|are|was|would|should|must|do)\s+(?:it|that|this|the|i|we)\b")
_QUESTION_VERB = re.compile(r"\W*(?:is|are|was|do|must|would|should)\b")
_HEAD = re.compile(r"[\s\w(\"'\[{<*_`$,:.;!—\\]*")
_VARIABLE = re.compile(r"\b[a-z]\s*=\s*\Z")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CONNECTIVE = re.compile(
    r"(?P<so>[,;.—]?\s*\b(?:so|therefore|hence|thus|leaving|which leaves)\b)|(?P<but>\bbut\b)"
    r"|(?P<stop>[.;!]\s)|(?P<comma>,)"
)
_DENIES = re.compile(r"\b(?:not|cannot|neither|wrong|incorrect|false)\b|n't\b")

# Parts of a sentence behind an option that are read, such as "is right", "of course" and a reason.
_PARTS: Final = 5
_MARKS = re.compile(r"[\s)\]}>*_\"'`$✓✔✅]*")
_AGAIN = re.compile(f"(?:[\\s/,=(]*{_ONE}[)\\]*]*)+")
_BREAK = re.compile(r"[.:!](?=\s|\Z)|[;—\n(]|-(?=\s)")
_REASON = re.compile(r"(?:because|since|as(?! well)|for|due|given)\b")
_PREDICATE_WORDS: Final = """
    is was are would must should be seems looks fits matches works holds has to the a an most more
    best right correct true proper good better fitting closest nearest likely clear clearly
    obviously certainly definitely surely probably indeed answer option choice one match it what i
    think believe guess say my final here sure of for course only that by far
"""
_PREDICATE: Final = frozenset(_PREDICATE_WORDS.split())
_NOT_OTHER = re.compile(
    r"(?:but |and )?(?:not|rather than|instead of|over) (?:the |an? )?(?:(?:option|choice) )?"
    + _OTHER
)
_APPOSITION = re.compile(r"(?:the|a|an|which)\b")
_TAKES_BACK = re.compile(
    r"[^\w\ue000\ue001]*(?:or|and|maybe|perhaps|possibly|also|no|not|nope|nah|never|wait|actually"
    r"|but|though|although|however|yet|unless|except|if|hmm|oh|sorry|scratch|just"
    r"|none(?! of the others?\b)|neither|instead|rather|on (?:second|reflection)|correction"
    r"|make (?:that|it)|my mistake|i (?:take (?:that|this|it) back|retract|withdraw|meant?)"
    r"|(?:i(?:'ve)? )?changed? my mind)\b"
)
_BAD = re.compile(
    r"\bwrong\b|incorrect|\bfalse\b|doubt|hardly|unlikely|impossible|implausible|mistake|ruled"
    r"|\bexclud|\breject|eliminat|\bfails?\b|kidding|joking|unsure|\bscratch\b"
)
# Signs that say something about an option, and quotes that stand alone: C', 100!.
_SIGNS = re.compile(r"[≠=<>→¬~^+/|\\]")
_QUOTE = re.compile(r"(?<!\w)'|'(?!\w)")
# Another answer, in a few words.
_RESTATES = re.compile(
    r"(?:the|my)? ?(?:\w+ )?answer (?:is|was|should be|must be)\b(?P<what>[^.;!?\n]*)"
)
# A denial of the answer: these come after each other.
_SUBJECT = re.compile(f"{_ONE}|\\b(?:it|that|this|i|we|answer|option|choice)\\b")
_NEGATION = re.compile(r"\b(?:not|never|cannot)\b|n't\b")
_RIGHTNESS = re.compile(
    r"\b(?:right|correct|true|answer|option|choice|sure|likely|possible|plausible|be)\b"
)
_SENTENCE = re.compile(r"[.;!?\n]\s")
_OR_ELSE = re.compile(f"\\bor\\W+(?:\\w+\\W+)?{_OTHER}\\W+{_REASON.pattern}")
_LISTED = re.compile(f"{_OTHER}\\W*(?:\\Z|{_OTHER}|[).:;,])")


@dataclass(frozen=True, slots=True)
class Named:
    """An option's letter or text in a sentence, from `start` to `end`."""

    letter: str
    start: int
    end: int


def affirmed(text: str, named: Sequence[Named], *, own: dict[str, str]) -> str | None:
    """The letter of the one option that the sentence affirms, or None.

    `named`: the options that stand in it, in order and apart. `own`: the options' texts by
    letter, in small letters, where options are named by their letters; empty where by their texts.
    """
    # Quotes that don't come in pairs; counted once, as a text may name its options often.
    odd = {
        sign
        for sign, count in (('"', text.count('"')), ("'", len(_QUOTE.findall(text))))
        if count % 2 == 1
    }
    found = [
        letter
        for letter in dict.fromkeys(one.letter for one in named)
        if not any(_is_altered(text, one, odd) for one in named if one.letter == letter)
        and _affirms(_masked(text, named, letter), own.get(letter))
    ]
    return found[0] if len(found) == 1 else None


def _masked(text: str, named: Sequence[Named], letter: str) -> str:
    """The sentence in small letters, with a character for each option."""
    parts: list[str] = []
    end = 0
    for one in named:
        parts += text[end : one.start].translate(_PRIVATE).casefold()
        parts += _ONE if one.letter == letter else _OTHER
        end = one.end
    parts += text[end:].translate(_PRIVATE).casefold()
    return "".join(parts)


def _is_altered(text: str, one: Named, odd: set[str]) -> bool:
    """Whether a sign right behind an option makes it another: C' and 100! are not C and 100."""
    sign = text[one.end : one.end + 1]
    return text[one.end - 1].isdigit() if sign == "!" else sign in odd


def _affirms(sentence: str, own: str | None) -> bool:
    head, _, tail = _CERTAINLY.sub("", sentence).partition(_ONE)
    if head.rstrip().endswith("<") and not tail.lstrip().startswith(">"):
        return False  # "< 100" is a bound
    if head.endswith("!"):
        return False  # "!C" is a denial
    return _leads(head, by_text=own is None) and _follows(tail, own or "")


def _leads(head: str, *, by_text: bool) -> bool:
    """Whether what stands before an option leads to it."""
    if _OTHER not in head and _is_frame(head, by_text=by_text):
        return True
    last = None
    for last in _CONNECTIVE.finditer(head):
        if last["so"] and _is_frame(head[last.end() :], by_text=by_text):
            break
    if last is None:
        return False
    clause, frame = head[: last.start()], head[last.end() :]
    if _OTHER in frame or not _is_frame(frame, by_text=by_text):
        return False
    denied = _OTHER in clause and _DENIES.search(clause) is not None
    match last.lastgroup:
        case "so":
            if _QUESTION_VERB.match(frame):  # "A is right, and so is B"
                return False
            return _OTHER in clause or (not last[0][0].isalpha() and bool(clause.strip()))
        case "but":
            return denied
        case "comma":  # "not A, B" denies both
            return denied and _WORD.search(frame) is not None
    return denied or _WORD.search(frame) is not None


def _is_frame(head: str, *, by_text: bool) -> bool:
    if by_text:
        head = _VARIABLE.sub("", head)
    if _HEAD.fullmatch(head) is None or _QUESTION.match(head):
        return False
    words = _WORD.findall(head)
    unknown = [place for place, word in enumerate(words) if word not in _FRAME]
    if not unknown:
        return True
    noun = unknown[0]
    return (
        by_text
        and len(unknown) == 1
        and noun > 0
        and words[noun - 1] in _ARTICLES
        and _TURNING.match(words[noun]) is None
    )


def _follows(tail: str, own: str, parts: int = _PARTS) -> bool:
    """Whether what stands behind an option leaves it the answer. `parts`: how many are read."""
    again = _AGAIN.match(tail)
    tail = tail[again.end() :] if again else tail
    tail = tail[_MARKS.match(tail).end() :]  # type: ignore[union-attr]  # matches everywhere
    if not tail.strip(".,;:!— "):
        return True
    if _repeats(tail.lstrip(" -"), own):
        return True
    if (stop := _BREAK.match(tail)) is not None:
        return _explains(tail[stop.end() :].strip(), own)
    if tail[0] == ",":
        rest = tail[1:].strip()
        return (
            _follows_words(rest, own, parts)
            or _repeats(rest, own)
            or bool(_APPOSITION.match(rest) and _explains(rest, own))
        )
    return _follows_words(tail, own, parts)


def _follows_words(tail: str, own: str, parts: int = 1) -> bool:
    """Whether a reason, a denial of others or an affirmation stands there."""
    if _REASON.match(tail):
        return _OR_ELSE.search(tail) is None
    if _NOT_OTHER.match(tail):
        return _ONE not in tail
    end = re.search(r"[.,:;!—\n(]|" + r"\b" + _REASON.pattern, tail)
    predicate = tail[: end.start()] if end else tail
    words = _WORD.findall(predicate)
    if not words or not all(word in _PREDICATE for word in words) or "?" in predicate:
        return False
    if _SIGNS.search(predicate):
        return False
    return end is None or (parts > 1 and _follows(tail[end.start() :], own, parts - 1))


def _explains(rest: str, own: str) -> bool:
    """Whether a text of its own behind the answer is about it and doesn't take it back."""
    if not rest.strip(" )*_"):
        return True
    if own and rest.startswith(own):
        return _repeats(rest, own)
    if _REASON.match(rest) or _NOT_OTHER.match(rest):
        return _follows_words(rest, own)
    if _TAKES_BACK.match(rest) or _LISTED.match(rest):
        return False
    words = _WORD.findall(rest)
    if not words and "?" in rest:
        return False
    if len(words) <= 2 and not all(word in _PREDICATE or word in own for word in words):
        return False
    restated = _RESTATES.match(rest)
    if restated and _is_another(restated["what"], own):
        return False
    first = _SENTENCE.split(rest, maxsplit=1)[0]
    return _OTHER in first or not _denies(first)


def _is_another(answer: str, own: str) -> bool:
    """Whether a few words give an answer that is none of the options."""
    words = _WORD.findall(answer)
    unknown = [word for word in words if word not in _PREDICATE and word not in _FRAME]
    named = _ONE in answer or _OTHER in answer
    return not named and 0 < len(unknown) == len(words) <= 2 and unknown[0] not in own


def _repeats(rest: str, own: str) -> bool:
    """Whether the option's own text stands there, and is not denied in its sentence."""
    if not own or not rest.startswith(own):
        return False
    first = _SENTENCE.split(rest[len(own) :], maxsplit=1)[0]
    return _OTHER in first or not _denies(_ONE + first)


def _denies(sentence: str) -> bool:
    """Whether it says that the answer is not right."""
    if _BAD.search(sentence):
        return True
    end = 0
    for part in (_SUBJECT, _NEGATION, _RIGHTNESS):
        found = part.search(sentence, end)
        if found is None:
            return False
        end = found.end()
    return True
