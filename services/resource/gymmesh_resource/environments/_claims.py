"""Whether a text states a number or name as the answer, and does not deny, bound or doubt it. Pure.

Only the sentence of the number is read, and before the number only the words that lead up to it:
"those who do not play are 72" states 72, "it is not exactly 72" does not. Time is linear in the
length of that sentence.
"""

from __future__ import annotations

import re

# Characters on either side of a number that say what it is.
_NEAR = 160
_ENDS = re.compile(r"[.!?;\n](?=\s|$)|\bbut\b|\bso\b|\bhence\b|\bthus\b|\btherefore\b", re.I)
_STOP = re.compile(r"[.!?\n](?=\s|$)")
_MARKS = re.compile(
    r"[*_`$\"“”()\[\]{}~]|\\[()\[\]]|\\(?:text|mathbf|boxed|framed)\b|\\[,;:! ]|</?[a-z]{1,8}>"
)
_BESIDE = re.compile(r",\s*(?:in fact|however|of course|i think|for sure|by any means|sadly)\s*,")
_NEGATION = r"(?:not|never|cannot|\w+n't|no longer|nowhere near|by no means|in no way)"
# Words between a denial and the number that it denies.
_FILLER = (
    r"(?:be|been|being|is|are|was|were|a|an|the|it|that|this|its|answer|answers|result|solution"
    r"|value|number|amount|total|as|to|of|for|equal|equals|exactly|precisely|simply|just|really"
    r"|quite|necessarily|actually|possibly|likely|have|has|give|gives|given|come|comes|out|at|by"
    r"|think|thinks|believe|believes|say|said|saying|claim|suppose|expect|guess|true|correct|right"
    r"|probable|plausible|possible|can|could|would|should|will|might|may|must|going|any|even"
    r"|in|fact|however|course|my|our|their|your|final|x|y|n|he|she|they|we|you|i|there|here"
    r"|accept|agree|get|gets|got|reach|make|makes|made|work|works|turn|turns|amounts|add|up|so|also)"
)
# Denials that may have such words before the number, and whether a clause denies one of them.
_DENIED = re.compile(
    rf"\b(?:{_NEGATION}(?: (?:sure|certain|clear|convinced))?(?: (?:if|whether))?"
    r"|no (?:way|chance|reason|case)|unequal|(?:differs?|different|distinct|far)"
    r" from|(?:wrong|incorrect|false|untrue|mistaken) (?:that|to|answer|value|result|number)\b"
    r"|an? (?:mistake|error)|impossible|improbable|unlikely|unsure|implausible|hardly|scarcely"
    r"|barely|(?:fails?|failed|refuses?|declines?) to|(?<!\bno )doubts?|doubtful|opposite of"
    r"|other than"
    r"|(?:anything|all|everything|any \w+|every \w+) but|except)"
    rf"(?:\s+(?:from|of|than|with|like|=|{_FILLER}))*\s*:?\s*$"
)
_NO_DENIAL = re.compile(
    rf"\b(?:{_NEGATION}|nothing|none|nobody|no one)\b[^,.;]*\b(?:other than|anything but|doubts?"
    r"|doubtful|wrong|incorrect|false|except)\b|\bnothing (?:other than|but)|\bnone other than"
)
# What stands right before a number that is a bound, or is named only to be left out.
_BOUNDED = re.compile(
    r"(?:\b(?:more|less|fewer|greater|larger|smaller|bigger|higher|lower|older|younger|longer"
    r"|shorter|rather|better|worse|later|earlier) than|\bat (?:the )?(?:least|most|minimum|maximum)"
    r"|(?<!add )(?<!adds )(?<!sum )(?<!sums )(?<!ing )(?<!comes )(?<!come )\bup to|\bclose to"
    r"|(?<!has )(?<!reaches )(?<!attains )\ba (?:minimum|maximum) of"
    r"|\bno (?:more|less|fewer)|\b(?:over|under|above|below|beyond|exceed(?:s|ing)?|near|nearly"
    r"|surpass(?:es|ing)?|almost|short of|within|upwards of|in excess of|bounded by|capped at"
    r"|either|neither|nor|between|instead of|without|besides|aside from|apart from|as opposed to"
    r"|twice|double|triple|minus|negative(?=\s+$)|(?:half|third|quarter|root|square|cube|reciprocal"
    r"|inverse|multiple|multiples|divisor|factor|power|percent|%) of|(?:divided|multiplied"
    r"|divisible) by|modulo|(?:starts?|begins?|ends?) with"
    r"|excluding|excludes?|rejects?|rules? out|ruled out|den(?:y|ies)|avoids?|contradicts?"
    r"|refutes?|disproves?)"
    r"|(?<![-=])>=?|<=?|[≤≥≠≮≯≰≱∉∈≡≪≫⩽⩾≦≧¬]|!=|=/=|/="
    r"|\\(?:le|ge|ne|leq|geq|neq|leqslant|geqslant|lt|gt|ll|gg|in|notin|equiv|not|neg|subset|pm)"
    # A sign that joins it to something else, or a function of it.
    r"|[×÷∪∩⊕⊗]|(?<![\w)])/|\\(?:times|cdot|div|cup|cap|setminus|oplus|ominus|otimes|odot|wedge"
    r"|vee|land|lor|ast|star|mp|sqcup|sqcap|uplus|bmod|mod|sqrt|log|ln|exp))"
    r"(?:\s+(?:or equal(?: to)?|to|the|an?|of|number|value|about|around|exactly|only|even))*"
    r"\s*[=:]?\s*$"
)
_BETWEEN = re.compile(r"\b(?:between|from|range\w*|anywhere)\b[^.]*\d[^.\d]*\b(?:and|to)\s*$")
_MAYBE = r"(?:(?:maybe|perhaps|possibly|even|about|else)\s+)?"
_AFTER_ANOTHER = re.compile(
    rf"\d(?P<things>(?:\s+[a-z]+)?)\s*,?\s*\b(?:or|and/or)\s+{_MAYBE}$"
    r"|\d\s*(?:[+/×·^÷]|\\times|\\cdot|\bplus|\bminus|\btimes|\bdivided by)\s*$"
)
_UNIT = r"(?:\s*%|\s+[a-z]{1,3}(?:/[a-z]{1,3})?(?=\s))?"
_THINGS = r"(?:\s*%|\s+(?!or\b|and\b|is\b|are\b|at\b|as\b|that\b|which\b)[a-z]+)?"
_VERB = (
    r"(?:is|are|was|were|be|'s|seems?|looks?|sounds?|appears?|would be|can be|could be|has been"
    r"|must be|might be|may be|should be|turns? out|proves?|to be|will be)"
)
_ADVERB = r"(?:(?:clearly|definitely|certainly|obviously|simply|just|also|quite|very|surely)\s+)*"
_WRONG = (
    r"(?:wrong|incorrect|false|untrue|impossible|improbable|unlikely|implausible|ruled out"
    r"|excluded|rejected|eliminated|out of the question|invalid|inadmissible|mistaken|an? mistake"
    r"|an error|off the table|doubtful|nonsense|absurd|not (?:right|correct|true|possible|it)"
    r"|too (?:big|small|large|high|low|much|many|few|little))\b"
)
_DENIED_AFTER = re.compile(
    rf"\s*{_VERB}\s*{_ADVERB}(?:not|never|no longer|n't|far from)\b"
    r"|\s*(?:isn't|aren't|wasn't|can't|cannot|couldn't|could not|won't|will not|wouldn't"
    r"|would not|doesn't|does not|shouldn't|should not|mustn't|must not|fails?|failed"
    r"|contradicts?|violates?|may not|might not)\b"
    rf"|{_UNIT}\s*,?\s*(?:(?:it |that |this |which )?{_VERB}\s*)?{_ADVERB}(?:to be )?{_WRONG}"
    r"|\s*,?\s*(?:or|but) (?:maybe |perhaps |possibly )?not\b"
)
_BOUNDED_AFTER = re.compile(
    rf"{_THINGS}\s*,?\s*(?:(?:or|and)\s+(?:any |some )?(?:more|less|fewer|above|below|higher|lower"
    r"|greater|larger|smaller|bigger|over|under|up|upwards?|beyond|another|something)\b"
    r"|at (?:the )?(?:very )?(?:least|most|minimum|maximum)\b"
    r"|(?:minimum|maximum|tops|upwards?|onwards?)\b"
    r"|(?:is|as|being) (?:only |just |merely )?(?:an?|the) (?:upper|lower) (?:bound|limit))"
    r"|\s*(?:\+(?:\s*$|\s+[a-z])|(?:[+/×·÷!≤≥≠<>]|\^(?!\s*\\circ))\s*-?[\w\\]"
    r"|\\(?:times|cdot|pm|le|ge|ne|neq|leq|geq)\b|(?:squared|cubed)\b(?!\s+[a-z])"
    r"|(?:plus|minus|times|divided by|to the power|factorial)\b)"
)
_ANOTHER_AFTER = re.compile(
    rf"(?P<things>{_THINGS})\s*,?\s*(?:or|and/or|through)\s+{_MAYBE}[-−]?\d[\d.,]*"
    r"(?:(?P=things)(?![a-z])|\s*$)"
    r"|\s*(?:to|-|–)\s*(?!\d+\s*(?:decimal|significant|d\.?p|s\.?f|places|digits|sig))\d"
)
_TAKEN_BACK = re.compile(
    r"\s*(?:no(?:[,.!]|\s*$)|nope|wrong\b|false\b|incorrect|not (?:really|quite|true|right|correct)"
    r"|wait\b.{0,20}\b(?:no|wrong)\b|(?:that|this|it)(?:'s| is| was| can't| cannot| would be) ?"
    rf"(?:{_WRONG}|n't (?:right|correct|true|it)|be right))"
)
_BUT = re.compile(r"\bbut\b")
_CONFIRMED = re.compile(r"\s*(?:yes|yeah|yep|right|correct|indeed|it is|exactly|true)\b")
# A number's own clause that asks: "could it be 72", "well, is that 72", "is 72 right".
_AUXILIARY = (
    r"(?:(?:is|are|was|were|do|does|did|can|could|would|will|shall|should|may|might|has|have)"
    r"(?:n't)?|am|won't|can't|shan't)"
)
_ASKING = re.compile(
    rf"\s*(?:(?:and|or|then|well|hmm+|ok|okay|now)\s+)?(?:{_AUXILIARY}\b|(?:how|what) about\b"
    r"|what if\b|why not\b)"
    rf"|.*[,:]\s*{_AUXILIARY}\s+(?:it|that|this|the|there|she|he|they|we|you|i|x|n|its|my|our)\b",
    re.S,
)
# A question that closes a statement, in a clause of its own: ", right?", ", does that help?". Not
# one that names another number, or asks whether this one is it.
_CLOSING_QUESTION = re.compile(
    r"(?:[,;:]|\s[-–—]+|—)\s*(?:(?:and|so|then|but|now|please)\s+)?"
    r"(?!\w+ (?:it|that|this)(?: be)?\s*$)"
    rf"(?:{_AUXILIARY}|what|which|who|whom|whose|where|when|why|how|right|correct|ok|okay|yes|yeah"
    r"|agreed?|see|understood|understand|got|clear|alright|all right|fine|good|sounds?|makes? sense"
    r"|huh|eh|want|need|any|anything|like|care|ready|deal)\b(?!.*\d\s*$)",
    re.S,
)


def gives(text: str, start: int, end: int) -> bool:
    """Whether the number or name at a place of a text is given as the answer there."""
    before = _plain(text[max(0, start - _NEAR) : start])
    behind = _plain(text[end : end + _NEAR])
    cuts = (found.end() for found in _ENDS.finditer(before) if not _in_phrase(before, found))
    clause = before[max(cuts, default=0) :]
    stop = _STOP.search(behind)
    rest, follows = (behind[: stop.start()], behind[stop.end() :]) if stop else (behind, "")
    if _BETWEEN.search(clause) or _BOUNDED.search(clause) or _is_one_of_two(clause, rest):
        return False
    if _DENIED.search(clause) and not _NO_DENIAL.search(clause):
        return False
    if any(one.match(rest) for one in (_DENIED_AFTER, _BOUNDED_AFTER, _ANOTHER_AFTER)):
        return False
    turned = _BUT.search(rest)
    if turned and _TAKEN_BACK.match(rest, turned.end()):
        return False
    if _TAKEN_BACK.match(follows):
        return False
    ends_in_question = stop is not None and stop.group() == "?"
    return not ends_in_question or _is_stated(clause, rest) or bool(_CONFIRMED.match(follows))


def _is_stated(clause: str, rest: str) -> bool:
    """Whether only a later clause of the sentence asks: the answer is 72, does that help?"""
    return not _ASKING.match(clause) and _CLOSING_QUESTION.search(rest) is not None


def _is_one_of_two(clause: str, rest: str) -> bool:
    """Whether another number of the same things leads up to it: 71 apples or 72 apples."""
    found = _AFTER_ANOTHER.search(clause)
    return found is not None and rest.startswith(found["things"] or "")


def _in_phrase(before: str, found: re.Match[str]) -> bool:
    """Whether a "but" is that of "anything but"."""
    words = before[: found.start()].split()
    near = words[-2:]
    return found.group() == "but" and any(
        one in ("anything", "all", "everything", "any", "every", "nothing") for one in near
    )


def _plain(text: str) -> str:
    """Small letters without emphasis, with straight apostrophes."""
    text = _MARKS.sub(" ", text.replace("’", "'").lower())
    text = text.replace("can not", "cannot").replace(r"\displaystyle", " ")
    return _BESIDE.sub(" ", re.sub(r"[^\S\n]+", " ", text))
