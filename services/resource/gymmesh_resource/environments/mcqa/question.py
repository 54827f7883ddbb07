r"""A multiple choice question, and the modes in which a choice is written down. Pure.

Modes:
strict_single_letter_boxed: the last ``\boxed{}`` holds a letter alone.
lenient_boxed: as above; else the box names one option by its text.
lenient_answer_colon: "Answer: …" is a letter alone, or the text of an option.
lenient_answer_colon_md: "Answer: …" names one letter, also in a sentence or before a reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal, TypeVar, get_args

from gymmesh_resource.environments._latex import BOX, boxes, without_text
from gymmesh_resource.environments._plain_text import plain, without_question_mark
from gymmesh_resource.environments._quantities import Quantity, quantity

K = TypeVar("K", bound=Hashable)

ReadingMode = Literal[
    "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"
]
MODES: Final[tuple[ReadingMode, ...]] = get_args(ReadingMode)

# The word "answer" in the languages of localized question sets, before a colon.
_ANSWERS: Final = (
    # Latin script
    "Antwort", "Antwoord", "Svar", "Respuesta", "Resposta", "Réponse", "Risposta", "Răspuns",
    "Odpowiedź", "Odpověď", "Odpoveď", "Odgovor", "Válasz", "Vastaus", "Vastus",
    "Atsakymas", "Atbilde", "Cevap", "Yanıt", "Jawaban", "Jawapan", "Jibu", "Amsa", "Ìdáhùn",
    "Sagot", "Đáp án", "Trả lời", "Câu trả lời", "Cavab", "Javob", "Përgjigje", "Ateb", "Freagra",
    # Cyrillic, Greek, Hebrew, Arabic
    "Ответ", "Відповідь", "Отговор", "Одговор", "Адказ", "Жауап", "Απάντηση", "תשובה",
    "الإجابة", "الجواب", "جواب", "پاسخ",
    # East and South-East Asia
    "答案", "回答", "解答", "答え", "答", "정답", "답변", "답", "คำตอบ", "ចម្លើយ", "အဖြေ",
    # South Asia
    "উত্তর", "উত্তৰ", "જવાબ", "उत्तर", "ಉತ್ತರ", "ഉത്തരം", "ଉତ୍ତର", "ਜਵਾਬ", "ਉੱਤਰ", "பதில்",
    "సమాధానం", "జవాబు", "පිළිතුර",
)  # fmt: skip
# Scripts that write words without spaces between them have no edge of a word before one.
_FINAL: Final = r"(?: (?:final|finale|correcta|correcte|corretta|correta|benar|akhir))?"
LOCALIZED: Final = (
    r"(?:(?<![^\W\u0e00-\u9fff])|(?=[\u0e00-\u9fff]))(?:"
    + "|".join(unicodedata.normalize("NFKC", word) for word in _ANSWERS)
    + ")"
    + _FINAL
)
# How NeMo Gym reads some of them: at the end of the response, before a letter alone.
LAST_LINE: Final = re.compile(
    r"[*_\s]*(?:উত্তর|উত্তৰ|જવાબ|उत्तर|ಉತ್ತರ|ഉത്തരം|ଉତ୍ତର|ਜਵਾਬ|ਉੱਤਰ|பதில்|సమాధానం|జవాబు|جواب|الإجابة)"
    r"[*_]{0,2}\s*:[*_\s]*\(?([A-Za-z])\)?[*_\s.।。]*"
)
# Letters that stand for A to D in Arabic and Bengali.
LETTERS: Final = str.maketrans(
    {"أ": " A", "ب": " B", "ج": " C", "د": " D", "অ": " A", "ব": " B", "ড": " C", "ঢ": " D"}
)


@dataclass(frozen=True)
class ChoiceQuestion:
    """The options: their texts by capital letter, in order; a letter may come twice."""

    options: Sequence[tuple[str, str]]

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters that can be chosen."""
        return frozenset(letter for letter, _ in self.options)

    def with_text(self, text: str) -> str | None:
        """The letter of the first option with this text, ignoring case and spaces."""
        wanted = " ".join(text.lower().split())
        return next(
            (letter for letter, one in self.options if " ".join(one.lower().split()) == wanted),
            None,
        )

    def named_by(self, text: str) -> str | None:
        """The letter of the one option whose whole text this is, notation and case aside.

        An option that is a number is named by an equal one. `text` is in plain notation.
        """
        letter = self._by_text.get(text.casefold())
        if letter is None and (number := quantity(text)) is not None:
            letter = self._by_number.get(number)
        return letter or None

    @cached_property
    def _by_text(self) -> dict[str, str]:
        """The letters by the options' texts; an empty one where two options read so."""
        texts = [(plain(option).casefold(), letter) for letter, option in self.options]
        return _by([*texts, *((without_question_mark(text), letter) for text, letter in texts)])

    @cached_property
    def _by_number(self) -> dict[Quantity, str]:
        """The letters by the numbers that options are."""
        numbers = ((quantity(plain(option)), letter) for letter, option in self.options)
        return _by((number, letter) for number, letter in numbers if number is not None)


@lru_cache(1024)
def question_of(options: tuple[tuple[str, str], ...]) -> ChoiceQuestion:
    """The question with these options. Cached, because a row is judged many times."""
    return ChoiceQuestion(options)


def _by(pairs: Iterable[tuple[K, str]]) -> dict[K, str]:
    """Letters by what names them; the empty text for what names two."""
    found: dict[K, str] = {}
    for key, letter in pairs:
        found[key] = letter if found.get(key, letter) == letter else ""
    return found


def last_box(text: str) -> str | None:
    r"""What the last ``\boxed{`` holds, free of text commands around it; None without one, or
    when its brace never closes.
    """
    last = text[max(text.rfind(BOX), 0) :]
    place = next(boxes(last), None)
    return None if place is None else without_text(last[place].strip())
