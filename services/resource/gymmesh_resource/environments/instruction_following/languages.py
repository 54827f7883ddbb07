"""The languages that a task may require, and whether a response is in one. Not IFEval's own check.

A script that only one language uses decides, at any length of the text. Among languages that share
a script the detector decides. The detector needs some text, because it often errs on a few words.
"""

from __future__ import annotations

import re
from typing import Final

from gymmesh_resource.environments.instruction_following.language import SAMPLE, likely_languages

_CODES = """
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr
    ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
"""
DETECTED: Final = frozenset(_CODES.split())
"""The codes that the detector knows."""

_OTHER_NAMES: Final[dict[str, str]] = dict(
    re.findall(
        r"(\S+):(\S+)",
        """
        nb:no nn:no fil:tl iw:he in:id zh-hans:zh-cn zh-hant:zh-tw zh-sg:zh-cn zh-hk:zh-tw
        zh-mo:zh-tw chinese:zh arabic:ar bulgarian:bg bengali:bn czech:cs danish:da dutch:nl
        english:en finnish:fi french:fr german:de greek:el gujarati:gu hebrew:he hindi:hi
        hungarian:hu indonesian:id italian:it japanese:ja kannada:kn korean:ko malayalam:ml
        marathi:mr nepali:ne norwegian:no persian:fa polish:pl portuguese:pt punjabi:pa
        romanian:ro russian:ru spanish:es swahili:sw swedish:sv tamil:ta telugu:te thai:th
        turkish:tr ukrainian:uk urdu:ur vietnamese:vi
        """,
    )
)
# Letters of each script and the languages that are written in it; any other letter is Latin.
_SCRIPTS: Final = {
    re.compile("[\u0370-\u03ff\u1f00-\u1fff]"): ("el",),
    re.compile("[\u0400-\u052f]"): ("bg", "mk", "ru", "uk"),
    re.compile("[\u0590-\u05ff]"): ("he",),
    re.compile("[\u0600-\u06ff\u0750-\u077f]"): ("ar", "fa", "ur"),
    re.compile("[\u0900-\u097f]"): ("hi", "mr", "ne"),
    re.compile("[\u0980-\u09ff]"): ("bn",),
    re.compile("[\u0a00-\u0a7f]"): ("pa",),
    re.compile("[\u0a80-\u0aff]"): ("gu",),
    re.compile("[\u0b80-\u0bff]"): ("ta",),
    re.compile("[\u0c00-\u0c7f]"): ("te",),
    re.compile("[\u0c80-\u0cff]"): ("kn",),
    re.compile("[\u0d00-\u0d7f]"): ("ml",),
    re.compile("[\u0e00-\u0e7f]"): ("th",),
    re.compile("[\uac00-\ud7af\u1100-\u11ff\u3130-\u318f]"): ("ko",),
    re.compile("[\u3040-\u30ff]"): ("ja",),
    re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"): ("zh-cn", "zh-tw"),
}
_LATIN: Final = DETECTED - {code for codes in _SCRIPTS.values() for code in codes}
_LETTER = re.compile(r"[^\W\d_]")
_KANA = re.compile("[\u3040-\u30ff]")
# Of the letters of a Japanese text at least this share is kana.
_KANA_SHARE = 0.05
# Letters below which the detector errs too often to say that a text is not English.
_ENOUGH = 40


def language_code(value: object) -> str:
    """A code of the detector's, or `zh` for Chinese of both kinds. An argument's kind.

    Regions, other codes and English names are understood: `pt-BR`, `zh_Hant`, `German`.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    wanted = value.strip().lower().replace("_", "-")
    for known in (wanted, wanted.partition("-")[0]):
        code = _OTHER_NAMES.get(known, known)
        if code in DETECTED or code == "zh":
            return code
    known_codes = ", ".join(sorted(DETECTED))
    raise ValueError(f"is {value!r}, a language that cannot be detected; use one of {known_codes}")


def is_in(text: str, language: str) -> bool:
    """Whether a text is in a language, by its code. A text without letters is in none."""
    text = text[:SAMPLE]
    candidates = _by_script(text)
    wanted = {"zh-cn", "zh-tw"} if language == "zh" else {language}
    if not wanted & candidates:
        return False
    if candidates <= wanted:
        return True
    found = {*likely_languages(text), *likely_languages(text.lower())} & candidates
    # Undecided: nothing speaks against it.
    return not found or bool(wanted & found)


def may_be_english(text: str) -> bool:
    """Whether a text, in capitals or not, may be English: nothing shows another language."""
    text = text[:SAMPLE]
    candidates = _by_script(text)
    if candidates and "en" not in candidates:
        return False
    if len(_LETTER.findall(text)) < _ENOUGH:
        return True
    found = likely_languages(text.lower())  # its profiles are of ordinary text
    return not found or "en" in found


def _by_script(text: str) -> frozenset[str]:
    """The languages written in the script that most letters are of; empty without letters."""
    letters = len(_LETTER.findall(text))
    counts = {codes: len(script.findall(text)) for script, codes in _SCRIPTS.items()}
    kana, han = counts["ja",], counts["zh-cn", "zh-tw"]
    if kana >= _KANA_SHARE * (kana + han):
        counts["ja",] += han
        counts["zh-cn", "zh-tw"] = 0
    codes, most = max(counts.items(), key=lambda entry: entry[1])
    if not letters and not most:
        return frozenset()
    return frozenset(codes) if most > letters / 2 else _LATIN
