r"""Makes cases/mcqa.jsonl: which option an answer chooses is written here by hand.

Run it as `.venv/bin/python -m tests.verdicts.make_mcqa`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

STRICT, BOXED, COLON, MARKDOWN = (
    "strict_single_letter_boxed",
    "lenient_boxed",
    "lenient_answer_colon",
    "lenient_answer_colon_md",
)
NUMBERS = ["10", "100", "1", "0"]
PLANETS = ["Venus", "Mars", "Earth", "Pluto"]
SHAPES = ["Circle", "Square", "Red square", "Triangle"]
SHARES = ["0.5", "1/3", "1,440", "-2"]
SENTENCES = ["It rises", "It does not rise", "It falls", "Not enough information"]
TEN = [f"{name} theorem" for name in
       ("Abel", "Bayes", "Cauchy", "Darboux", "Euler", "Fermat", "Gauss", "Hall", "Ito", "Jordan")]  # fmt: skip

# Mode, options, response, letter (None: it chooses nothing), why. `+` in front: other clothes.
READ: list[tuple[str, list[str], str, str | None, str]] = [
    (STRICT, PLANETS, "\\boxed{C}", "C", "the usual form"),
    (STRICT, PLANETS, "\\boxed{\\textbf{C}}", "C", "+bold"),
    (STRICT, PLANETS, "\\boxed{\\text{C}}", "C", "+text"),
    (STRICT, PLANETS, "\\boxed{\\mathrm{C}}", "C", "+upright"),
    (STRICT, PLANETS, "\\boxed{\\textbf{(C)}}", "C", "+bold in brackets"),
    (STRICT, PLANETS, "\\boxed{(C)}", "C", "+brackets"),
    (STRICT, PLANETS, "\\boxed{ C. }", "C", "+a full stop"),
    (STRICT, PLANETS, "\\boxed{C)}", "C", "+a bracket"),
    (STRICT, PLANETS, "$\\boxed{C}$", "C", "+mathematics"),
    (STRICT, PLANETS, "\\boxed{Ｃ}", "C", "+a full-width letter"),
    (STRICT, PLANETS, "\\boxed{c}", "C", "+a small letter"),
    (STRICT, PLANETS, "\\boxed{Option C}", "C", "+called an option"),
    (STRICT, PLANETS, "\\boxed{{C}}", "C", "+braces"),
    (STRICT, PLANETS, "\\boxed{**C**}", "C", "+emphasis"),
    (STRICT, PLANETS, "\\boxed{A} no: \\boxed{C}", "C", "+the last box counts"),
    (STRICT, PLANETS, "\\boxed{3C}", None, "a digit beside the letter"),
    (STRICT, PLANETS, "\\boxed{C3}", None, "a digit beside the letter"),
    (STRICT, PLANETS, "\\boxed{-C}", None, "a sign beside the letter"),
    (STRICT, PLANETS, "\\boxed{not C}", None, "negated"),
    (STRICT, PLANETS, "\\boxed{\\neg C}", None, "negated"),
    (STRICT, PLANETS, "\\boxed{A, C}", None, "two letters"),
    (STRICT, PLANETS, "\\boxed{A or C}", None, "two letters"),
    (STRICT, PLANETS, "\\boxed{ABCD}", None, "all letters"),
    (STRICT, PLANETS, "\\boxed{C?}", None, "a question"),
    (STRICT, PLANETS, "\\boxed{E}", None, "no option of that letter"),
    (STRICT, PLANETS, "\\boxed{Earth}", None, "the mode wants a letter"),
    (STRICT, PLANETS, "\\boxed{}", None, "an empty box"),
    (STRICT, PLANETS, "C", None, "no box"),
    (STRICT, PLANETS, "Answer: C", None, "no box"),
    (STRICT, PLANETS, "\\boxed{C} or rather \\boxed{D", None, "the last box is open"),
    (STRICT, PLANETS, "\\boxed{С}", None, "a Cyrillic letter"),
    (STRICT, PLANETS, "", None, "nothing"),
    (STRICT, PLANETS, "I'm sorry, I can't do that.", None, "a refusal"),
    (BOXED, NUMBERS, "\\boxed{100}", "B", "the option's own text"),
    (BOXED, NUMBERS, "\\boxed{10}", "A", "the option's own text"),
    (BOXED, NUMBERS, "\\boxed{1}", "C", "the option's own text"),
    (BOXED, NUMBERS, "\\boxed{0}", "D", "the option's own text"),
    (BOXED, NUMBERS, "\\boxed{100.0}", "B", "+an equal number"),
    (BOXED, NUMBERS, "\\boxed{x = 100}", "B", "+the number of a variable"),
    (BOXED, NUMBERS, "\\boxed{\\text{The answer is } 100}", "B", "+in a sentence"),
    (BOXED, NUMBERS, "\\boxed{10^2}", "B", "+an equal number"),
    (BOXED, NUMBERS, "\\boxed{B}", "B", "the letter"),
    (BOXED, NUMBERS, "\\boxed{B: 100}", "B", "+a label with its text"),
    (BOXED, NUMBERS, "\\boxed{B) 100}", "B", "+a label with its text"),
    (BOXED, NUMBERS, "\\boxed{91}", None, "digits of another number"),
    (BOXED, NUMBERS, "\\boxed{1000}", None, "digits of another number"),
    (BOXED, NUMBERS, "\\boxed{1/10}", None, "a number in an expression"),
    (BOXED, NUMBERS, "\\boxed{-10}", None, "the sign counts"),
    (BOXED, NUMBERS, "\\boxed{2 + 100}", None, "a number in an expression"),
    (BOXED, NUMBERS, "\\boxed{10.5}", None, "digits of another number"),
    (BOXED, NUMBERS, "\\boxed{10 or 100}", None, "two options"),
    (BOXED, NUMBERS, "\\boxed{10, 100, 1, 0}", None, "all options"),
    (BOXED, NUMBERS, "\\boxed{not 100}", None, "negated"),
    (BOXED, NUMBERS, "\\boxed{B: 10}", None, "a label with the text of another"),
    (BOXED, SHARES, "\\boxed{\\frac{1}{3}}", "B", "+a fraction"),
    (BOXED, SHARES, "\\boxed{1/2}", "A", "+an equal number"),
    (BOXED, SHARES, "\\boxed{1440}", "C", "+without grouping"),
    (BOXED, SHARES, "\\boxed{−2}", "D", "+a minus sign"),
    (BOXED, SHARES, "\\boxed{2}", None, "another number"),
    (BOXED, SHARES, "\\boxed{440}", None, "another number"),
    (BOXED, PLANETS, "\\boxed{Mars}", "B", "the option's own text"),
    (BOXED, PLANETS, "\\boxed{mars.}", "B", "+small letters"),
    (BOXED, PLANETS, "\\boxed{\\text{Mars}}", "B", "+text"),
    (BOXED, PLANETS, "\\boxed{The planet Mars}", "B", "+in words"),
    (BOXED, PLANETS, "\\boxed{it is Mars}", "B", "+in words"),
    (BOXED, PLANETS, "\\boxed{B. Mars}", "B", "+a label with its text"),
    (BOXED, PLANETS, "\\boxed{not Mars}", None, "negated"),
    (BOXED, PLANETS, "\\boxed{isn't Mars}", None, "negated"),
    (BOXED, PLANETS, "\\boxed{anything except Mars}", None, "negated"),
    (BOXED, PLANETS, "\\boxed{never Mars}", None, "negated"),
    (BOXED, PLANETS, "\\boxed{Mars or Venus}", None, "two options"),
    (BOXED, PLANETS, "\\boxed{either Mars or not}", None, "a hedge"),
    (BOXED, PLANETS, "\\boxed{Venus Mars Earth Pluto}", None, "all options"),
    (BOXED, PLANETS, "\\boxed{Marsh}", None, "another word"),
    (BOXED, PLANETS, "\\boxed{Earthly}", None, "another word"),
    (BOXED, PLANETS, "\\boxed{B: Venus}", None, "a label with the text of another"),
    (BOXED, PLANETS, "Mars \\boxed{?}", None, "outside the box"),
    (BOXED, SHAPES, "\\boxed{Red square}", "C", "the longer option is meant"),
    (BOXED, SHAPES, "\\boxed{a red square}", "C", "+the longer option is meant"),
    (BOXED, SHAPES, "\\boxed{a square}", "B", "+in words"),
    (BOXED, SHAPES, "\\boxed{square and red square}", None, "two options"),
    (BOXED, SENTENCES, "\\boxed{It does not rise}", "B", "a negation in the option itself"),
    (BOXED, SENTENCES, "\\boxed{not enough information.}", "D", "+small letters"),
    (BOXED, SENTENCES, "\\boxed{It rises}", "A", "the option's own text"),
    (BOXED, ["Mars", "Mars", "Venus", "Earth"], "\\boxed{Mars}", None, "two options read so"),
    (COLON, PLANETS, "Answer: B", "B", "the usual form"),
    (COLON, PLANETS, "Answer: (B)", "B", "+brackets"),
    (COLON, PLANETS, "Answer: B.", "B", "+a full stop"),
    (COLON, PLANETS, "Answer: b", "B", "+a small letter"),
    (COLON, PLANETS, "**Answer: B**", "B", "+emphasis"),
    (COLON, PLANETS, "**Answer:** B", "B", "+emphasis"),
    (COLON, PLANETS, "Answer: **B**", "B", "+emphasis"),
    (COLON, PLANETS, "Answer：B", "B", "+a full-width colon"),
    (COLON, PLANETS, "Answer:\nB", "B", "+on the next line"),
    (COLON, PLANETS, "Answer: \\text{B}", "B", "+text"),
    (COLON, PLANETS, "Answer: $\\boxed{B}$", "B", "+a box"),
    (COLON, PLANETS, "Answer: Mars", "B", "the option's own text"),
    (COLON, PLANETS, "Answer: mars.", "B", "+small letters"),
    (COLON, PLANETS, "Answer: B. Mars", "B", "+a label with its text"),
    (COLON, PLANETS, "Answer: option B", "B", "+called an option"),
    (COLON, PLANETS, "Answer: A\nNo. Answer: B", "B", "+the last answer counts"),
    (COLON, PLANETS, "Answer: not B", None, "negated"),
    (COLON, PLANETS, "Answer: A or B", None, "two letters"),
    (COLON, PLANETS, "Answer: A, B, C, D", None, "all letters"),
    (COLON, PLANETS, "Answer: Z", None, "no option of that letter"),
    (COLON, PLANETS, "Answer: B. Venus", None, "a label with the text of another"),
    (COLON, PLANETS, "Answer: Mars Venus", None, "two options"),
    (COLON, PLANETS, "B", None, "no marker"),
    (COLON, PLANETS, "Answer: ", None, "nothing behind the marker"),
    (COLON, PLANETS, "Answer: unknown", None, "no option"),
    (MARKDOWN, TEN, "Answer: I think it is C.", "C", "+a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: I'm sure it is C", "C", "+a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: I", "I", "the letter alone"),
    (MARKDOWN, TEN, "Answer: (I)", "I", "+brackets"),
    (MARKDOWN, TEN, "Answer: I think it is I.", "I", "+a pronoun and a letter"),
    (MARKDOWN, TEN, "Answer: I don't know", None, "a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: I can't say.", None, "a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: A tough question", None, "an article is a word"),
    (MARKDOWN, PLANETS, "Answer: A good match is C", "C", "+an article is a word"),
    (MARKDOWN, PLANETS, "Answer: A", "A", "the letter alone"),
    (MARKDOWN, PLANETS, "Answer: A because it is closest", "A", "+before a reason"),
    (MARKDOWN, PLANETS, "Answer: A is the one", "A", "+in a sentence"),
    (MARKDOWN, PLANETS, "Answer: option A seems best", "A", "+called an option"),
    (MARKDOWN, PLANETS, "Answer: the best is B", "B", "+in a sentence"),
    (MARKDOWN, PLANETS, "Answer: B because C is not a planet", "B", "+other letters in the reason"),
    (MARKDOWN, PLANETS, "Answer: B. A and C are too far away.", "B", "+other letters in the reason"),
    (MARKDOWN, PLANETS, "Answer: B, since D is no planet", "B", "+other letters in the reason"),
    (MARKDOWN, PLANETS, "Answer: B, not A", "B", "+another one is negated"),
    (MARKDOWN, PLANETS, "Answer: not A but B", "B", "+another one is negated"),
    (MARKDOWN, PLANETS, "Answer: A is wrong, so B", "B", "+another one is negated"),
    (MARKDOWN, PLANETS, "Answer: B rather than A", "B", "+another one is negated"),
    (MARKDOWN, PLANETS, "Answer: B/B", "B", "+the same letter twice"),
    (MARKDOWN, PLANETS, "**Answer: B**", "B", "+emphasis"),
    (MARKDOWN, PLANETS, "__Answer__: B", "B", "+emphasis"),
    (MARKDOWN, PLANETS, "Answer: **B**", "B", "+emphasis"),
    (MARKDOWN, PLANETS, "Answer: $B$", "B", "+mathematics"),
    (MARKDOWN, PLANETS, "Answer: \\boxed{B}", "B", "+a box"),
    (MARKDOWN, PLANETS, "Answer: b) Mars", "B", "+a small label"),
    (MARKDOWN, PLANETS, "Answer: B) Mars", "B", "+a label with its text"),
    (MARKDOWN, PLANETS, "Answer: B - Mars", "B", "+a label with its text"),
    (MARKDOWN, PLANETS, "Answer: Mars", "B", "+the option's own text"),
    (MARKDOWN, PLANETS, "Answer: A\nAnswer: B", "B", "+the last answer counts"),
    (MARKDOWN, PLANETS, "উত্তর: B", "B", "+Bengali"),
    (MARKDOWN, PLANETS, "Answer: ب", "B", "+an Arabic letter"),
    (MARKDOWN, PLANETS, "Answer: not B", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: not option B", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: it isn't B", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: anything except B", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: B is wrong", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: neither A nor B", None, "negated"),
    (MARKDOWN, PLANETS, "Answer: A or B", None, "two letters"),
    (MARKDOWN, PLANETS, "Answer: A/B/C", None, "several letters"),
    (MARKDOWN, PLANETS, "Answer: A, B", None, "two letters"),
    (MARKDOWN, PLANETS, "Answer: A and B", None, "two letters"),
    (MARKDOWN, PLANETS, "Answer: (A) (B) (C) (D)", None, "all letters"),
    (MARKDOWN, PLANETS, "Answer: B. Or D.", None, "a hedge"),
    (MARKDOWN, PLANETS, "Answer: A is right, or B", None, "a hedge"),
    (MARKDOWN, PLANETS, "Answer: A: Venus B: Mars C: Earth D: Pluto", None, "all options"),
    (MARKDOWN, PLANETS, "Answer: B. Venus", None, "a label with the text of another"),
    (MARKDOWN, TEN, "Answer: I was thinking of C", "C", "+a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: I for one take C", "C", "+a pronoun is a word"),
    (MARKDOWN, TEN, "Answer: I because it fits", "I", "+before a reason"),
    (MARKDOWN, PLANETS, "Answer: Options A and B are wrong, so C", "C", "+others are negated"),
    (MARKDOWN, PLANETS, "Answer: It's definitely not C, so D", "D", "+another one is negated"),
    (MARKDOWN, PLANETS, "Answer: A lot of evidence supports B", "B", "+an article is a word"),
    (MARKDOWN, PLANETS, "Answer: A. B. C. D.", None, "all letters"),
    (MARKDOWN, PLANETS, "Answer: A; B", None, "two letters"),
    (MARKDOWN, PLANETS, "Answer: both A and B", None, "two letters"),
    (MARKDOWN, PLANETS, "Answer: A. Venus B. Mars", None, "two options"),
    (BOXED, ["x", "y", "x + y", "2"], "\\boxed{x^2}", None, "a sign in an expression"),
    (BOXED, ["x", "y", "x + y", "2"], "\\boxed{x + y}", "C", "the option's own text"),
    (BOXED, ["x", "y", "x + y", "2"], "\\boxed{y}", "B", "the option's own text"),
    (BOXED, ["increases", "decreases", "stays", "none"], "\\boxed{does not increase}", None, "negated"),
    (BOXED, ["true", "false", "open", "both"], "\\boxed{not true}", None, "negated"),
    (BOXED, ["$\\frac{1}{2}$", "$\\frac{1}{3}$", "$2$", "$3$"], "\\boxed{\\dfrac{1}{2}}", "A", "+another fraction command"),
    (BOXED, ["$\\frac{1}{2}$", "$\\frac{1}{3}$", "$2$", "$3$"], "\\boxed{0.5}", "A", "+an equal number"),
    (BOXED, NUMBERS, "\\boxed{100\\%}", None, "another unit"),
    (MARKDOWN, PLANETS, "Answer: unknown", None, "no option"),
    (MARKDOWN, PLANETS, "Answer: E", None, "no option of that letter"),
    (MARKDOWN, PLANETS, "Answer: all of them", None, "no letter"),
    (MARKDOWN, PLANETS, "the answer is (B).", None, "no colon"),
    (MARKDOWN, PLANETS, "\\boxed{B}", None, "no marker"),
    (MARKDOWN, PLANETS, "End with 'Answer: X'.", None, "the prompt's own words"),
]  # fmt: skip
# What names B behind "Answer:".
AFFIRMED = [
    "B", "(B)", "B.", "B: Mars", "option B", "the answer is B", "B, because it is near", "B because it's hot",
    "B. It is closest to the Sun.", "B - it is closest", "B (Mars)", "B (the closest planet)", "I think it is B",
    "I'm confident it's B", "I am certain that B is correct", "B is correct", "B is the correct answer", "B, not A",
    "B and not A", "B, since C is far", "Option (B)", "**B** because of this", "B, as it orbits closest",
    "The correct option is B.", "It must be B.", "The right choice: B", "The correct answer is option B: Mars",
    "So B", "Thus, B.", "My final answer is B", "Definitely B", "B!", "B for sure", "B, definitely", "B, of course",
    "the planet Mars", "Mars, not Pluto", "Mars", "It is Mars", "Mars (B)", "B) Mars", "B – Mars",
    "Mars, the closest planet", "Mars because it is closest", "I choose B", "I'd go with B.",
    "I would choose option B, Mars.", "Let me say B", "Choice B", "letter B", "the letter B", "\"B\"",
    "B is right because A is too far", "B is right. A is too far.", "A and C are wrong, so B", "Not A but B",
    "It's not A, it's B", "B rather than A", "B instead of A", "B seems most likely", "B ✅", "Most likely B",
    "A is out, so B", "A is wrong. B is right.", "I would pick B over C", "I pick B", "most probably B",
    "B is the best choice because it does not have moons", "B. Mars does not have moons.", "B: it has no atmosphere",
    "B. None of the others are close.", "B. The others are not close enough.", "both facts point to B", "statement B",
    "Clearly B", "B, the closest planet to the Sun", "B, which is Mars", "B because none of the others fit",
    "B as the others are wrong", "option b", "b", "Answer B", "I believe the answer to be B", "I have chosen B",
    "B is what fits best", "The closest planet is Mars", "After elimination, B", "By elimination, B",
    "By elimination: B", "The only option left is B", "the only correct option is B", "Without doubt B",
    "no doubt it's B", "B without a doubt", "B is the only correct one",
]  # fmt: skip
# What names nothing behind "Answer:".
NOT_AFFIRMED = [
    "B. Mars is wrong.", "B: Mars is not the answer", "A is correct, but so is B", "B (incorrect)", "B. It is not the answer.", "B, which is wrong", "B is the answer to avoid", "B of course not",
    "anything but B", "all but B", "everything except for B", "other than B", "the opposite of B",
    "the wrong one is B", "rather A than B", "I doubt it is B", "it's hardly B", "unlikely B",
    "impossible that it's B", "Is it B? No.", "B has been ruled out", "B can be excluded", "B would be a mistake",
    "B seems implausible", "B fails", "B or maybe not", "none of the above, though B is close", "not B",
    "B is not right", "B? No.", "B. No, C", "B. Wrong", "B, or C", "B is out", "B: unlikely", "B. Very unlikely.",
    "B, I doubt it", "nothing like B", "far from B", "B isn't it", "B is never right", "B would be wrong",
    "definitely not B", "B, just kidding", "B... not!", "B is the worst", "it could not be B", "who knows, B?",
    "B is a distractor", "avoid B", "Not A, B", "neither A, B", "least likely B", "B is least likely",
    "A is right, or B", "anything, but B", "the answer lies anywhere but B", "the answer is opposite to B",
    "one would be wrong to pick B", "B is wrong, so nothing", "B was my first guess, so no", "B, said nobody",
    "B is tempting", "B looks right but isn't", "B seems right, but A is", "B is the right answer? No", "B (wrong)",
    "B (not really)", "B - not", "B! Not!", "If not A, B", "unless B", "B unless A", "B if A is wrong",
    "A if B is wrong", "B minus", "the answer isn't B", "the planet Pluto, not Mars... B", "Mars is wrong",
    "hardly Mars", "the unlikely Mars", "the wrong Mars", "Mars or Pluto", "B and D", "the answer that isn't B",
    "I would never pick B", "ruled out: B", "eliminated: B", "incorrect: B", "wrong: B", "B as well as C", "B plus C",
    "B with C", "!B",
]  # fmt: skip
# What names Mars in a box.
AFFIRMED_TEXT = [
    "Mars, not Pluto", "The planet Mars", "Mars (B)", "(B) Mars", "It's Mars.", "Mars, because it is closest",
    "Mars rather than Pluto", "I think the closest planet is Mars",
]  # fmt: skip
# What names nothing in a box.
NOT_AFFIRMED_TEXT = [
    "hardly Mars", "anything but Mars", "Mars is wrong", "all but Mars", "no Mars", "far from Mars", "Mars is out",
    "Mars isn't it", "the excluded Mars", "the unlikely Mars", "the opposite of Mars", "Is it Mars?",
    "I doubt it is Mars", "Mars has been ruled out", "Mars, or not",
]  # fmt: skip
# "Answer" in other languages.
LANGUAGES = [
    "Antwort", "Respuesta", "Réponse", "Risposta", "Resposta", "Ответ", "答案", "回答", "答え", "정답", "답", "Jawaban",
    "Cevap", "Odpowiedź", "Jibu", "Svar", "Antwoord", "Απάντηση", "תשובה", "คำตอบ", "उत्तर", "الإجابة", "Đáp án",
    "Respuesta correcta",
]  # fmt: skip
# What names nothing there.
DENIED_ELSEWHERE = [
    "Antwort: nicht B", "Respuesta: no es B", "答案: 不是B", "Réponse : pas B", "Ответ: не B", "Antwort: A oder B",
    "Respuesta: A o B", "Antwort: alles außer B", "答案: A 或 B", "정답: B가 아니다", "Risposta: non B", "Cevap: B değil",
]  # fmt: skip
# Pattern, response, letter, why.
PATTERNS: list[tuple[str, str, str | None, str]] = [
    (r"ANSWER IS\s*([A-Za-z])", "The answer is B", "B", "the usual form"),
    (r"ANSWER IS\s*([A-Za-z])", "The answer is clear: Mars", None, "a letter of a word"),
    (r"ANSWER IS\s*([A-Za-z])", "The answer is bad", None, "a letter of a word"),
    (
        r"ANSWER IS\s*([A-Za-z])",
        "ANSWER IS B. The answer is clear.",
        "B",
        "+the last letter counts",
    ),
    (
        r"ANSWER IS\s*([A-Za-z])",
        "The answer is a or the answer is B",
        "B",
        "+the last letter counts",
    ),
    (r"Answer:\s*([A-D])", "Answer: Dolphin", None, "a letter of a word"),
    (r"Choice: (.+)", "Choice: mars", "B", "+the option's own text"),
    (r"Choice: (.+)", "Choice: **B**", "B", "+emphasis"),
    (r"Choice: (.+)", "Choice: (B)", "B", "+brackets"),
    (r"Choice: (.+)", "Choice: not B", None, "negated"),
    (r"Choice: (.+)", "Choice: A, B", None, "two letters"),
    (r"Choice: (.+)", "Choice: Venus or Mars", None, "two options"),
]
WRONG_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"options": [{"A": "x"}], "expected_answer": "B"}, "no such option"),
    ({"options": [], "expected_answer": "A"}, "no options"),
    ({"options": [{"A": "x"}], "expected_answer": "AB"}, "not a letter"),
    ({"options": [{"A": "x"}], "expected_answer": "A", "grading_mode": "guess"}, "no such mode"),
]
# Per mode: how a letter is written, and whether it then chooses (+: in other clothes).
FORMS: list[tuple[str, str, bool, str]] = [
    (STRICT, "\\boxed{%s}", True, "the usual form"),
    (STRICT, "\\boxed{\\textbf{%s}}", True, "+bold"),
    (STRICT, "\\boxed{not %s}", False, "negated"),
    (STRICT, "\\boxed{\\mathbf{%s}}", True, "+bold mathematics"),
    (STRICT, "$\\boxed{ %s. }$", True, "+spaces and a full stop"),
    (BOXED, "\\boxed{\\text{(%s)}}", True, "+text in brackets"),
    (BOXED, "\\boxed{option %s}", True, "+called an option"),
    (COLON, "Answer: **%s**", True, "+emphasis"),
    (MARKDOWN, "**Final Answer: %s**", True, "+emphasis around the line"),
    (MARKDOWN, "Answer: %s, because the others do not hold.", True, "+before a reason"),
    (COLON, "So **Answer: (%s)**", True, "+emphasis and brackets"),
    (COLON, "Answer: %s or another", False, "a hedge"),
    (MARKDOWN, "Answer: I believe that it is %s.", True, "+in a sentence"),
    (MARKDOWN, "Answer: It can't be %s", False, "negated"),
]


def _row(options: list[str], expected: str, mode: str) -> dict[str, Any]:
    named = [{letter: text} for letter, text in zip("ABCDEFGHIJ", options, strict=False)]
    return {"options": named, "expected_answer": expected, "grading_mode": mode}


def _sentences() -> Iterator[tuple[str, list[str], str, str | None, str]]:
    for mode, form in ((MARKDOWN, "Answer: %s"), (COLON, "Answer: %s"), (BOXED, "\\boxed{%s}")):
        for text in AFFIRMED:
            yield mode, PLANETS, form % text, "B", "+affirmed in a sentence"
        for text in NOT_AFFIRMED:
            yield mode, PLANETS, form % text, None, "no sentence that affirms one option"
    for text in AFFIRMED_TEXT:
        yield BOXED, PLANETS, f"\\boxed{{{text}}}", "B", "+affirmed in a sentence"
    for text in NOT_AFFIRMED_TEXT:
        yield BOXED, PLANETS, f"\\boxed{{{text}}}", None, "no sentence that affirms one option"
    for word in LANGUAGES:
        for form in ("%s: B", "**%s:** B", "%s：(B)", "x\n%s: B. Mars", "%s: Mars"):
            yield MARKDOWN, PLANETS, form % word, "B", "+another language"
    for text in DENIED_ELSEWHERE:
        yield MARKDOWN, PLANETS, text, None, "no option alone, in another language"


def _cases() -> Iterator[dict[str, Any]]:
    for mode, options, response, letter, why in (*READ, *_sentences()):
        clothes = {"clothes": True} if why.startswith("+") else {}
        why = why.removeprefix("+")
        # An answer that chooses nothing wins for no option; the one it could be taken for first.
        letters = [letter] if letter else ["C" if "C" in response else "B", "A"]
        for expected in letters:
            yield case(
                _row(options, expected, mode), response, float(letter is not None), why, **clothes
            )
        if letter:
            other = "A" if letter != "A" else "B"
            yield case(_row(options, other, mode), response, 0.0, f"another option ({why})")
    for mode, form, chooses, why in FORMS:
        for index, letter in enumerate("ABCDEFGHIJ"):
            clothes = {"clothes": True} if why.startswith("+") else {}
            options = random.Random(index).sample(TEN, 10)
            yield case(
                _row(options, letter, mode),
                form % letter,
                float(chooses),
                why.removeprefix("+"),
                **clothes,
            )
    for pattern, response, letter, why in PATTERNS:
        clothes = {"clothes": True} if why.startswith("+") else {}
        row = _row(PLANETS, "B", STRICT) | {"template_metadata": {"output_regex": pattern}}
        yield case(row, response, float(letter == "B"), why.removeprefix("+"), **clothes)
    for row, why in WRONG_ROWS:
        yield case(row, "\\boxed{A}", None, why)


if __name__ == "__main__":
    write("mcqa", _cases())
