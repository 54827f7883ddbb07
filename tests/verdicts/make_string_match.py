r"""Makes cases/string_match.jsonl: what is right is written here by hand, or exact arithmetic.

Run it as `.venv/bin/python -m tests.verdicts.make_string_match`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tests.verdicts.case_files import case, write

# Expected answer, right answers in other forms, wrong answers, why the wrong ones are wrong.
TEXTS: list[tuple[str, list[str], list[str], str]] = [
    ("Ada", ["ada", "ADA", "Ada.", '"Ada"', "**Ada**", "`Ada`", "“Ada”", "Ａｄａ", "\\text{Ada}"],
     ["Adam", "Ad", "Ida", "Ada or Adam", "not Ada", "Ada Lovelace", "ExpectedAda"], "another name"),
    ("Tom", ["tom", "Tom!", "'Tom'"], ["To", "Tomm", "Thomas", "Tim"], "another name"),
    ("kg", ["KG", "kg."], ["km", "g", "mg", "lb", ""], "another unit"),
    ("Paris", ["PARIS", "paris.", "\\boxed{Paris}", "\\textbf{Paris}", "__Paris__"],
     ["Rome", "Paris and Rome", "Paris, Texas", "Pari", "It is not Paris"], "another place"),
    ("Café", ["Cafe\u0301", "CAFÉ", "café."], ["Cafe", "Caf", "Kaffee"], "accents matter"),
    ("color", ["Color", "COLOR"], ["col", "colour", "collar"], "another word"),
    ("Normandy", ["normandy"], ["Nmandy", "Norm", "Normady"], "letters are missing"),
    ("Straße", ["STRASSE", "straße"], ["Strase"], "another word"),
    ("CAT", ["cat"], ["САТ", "CAR"], "Cyrillic letters or another word"),
    ("H2O", ["H₂O", "h2o"], ["H2O2", "HO", "H2"], "another formula"),
    ("x^2", ["x²", "$x^2$", "\\(x^{2}\\)"], ["x2", "x^3", "2x"], "a power is not a digit"),
    ("102", ["102.0"], ["10²", "10^2"], "ten squared is 100"),
    ("100", ["10²", "10^2"], ["102"], "ten squared is 100"),
    ("1e400", ["1E400", "10^400"], ["1e500", "1e401", "inf", "1e40"], "another power"),
    ("1.6e-19", ["1.6×10^-19", "1.6\\times10^{-19}", "1.6 × 10⁻¹⁹"],
     ["9.1e-31", "0", "1.6e19", "0.0000001", "-1.6e-19"], "another small number"),
    ("1945", ["1,945", "1945.", "1945.0"], ["1960", "1944", "1946", "945", "45"], "another year"),
    ("2024", ["2024."], ["2020", "2023", "2025", "24"], "another year"),
    ("007", ["007.", "**007**"], ["7", "07", "0007"], "leading zeros are part of an identifier"),
    ("02134", ["02134."], ["2134", "02135", "0213"], "another postal code"),
    ("9780306406157", [], ["9780306406158", "9780306406150", "978030640615"], "another identifier"),
    ("4111111111111111", [], ["4111111111111112", "4111111111111110"], "another identifier"),
    ("AB-1234", ["ab-1234", "AB\u20111234"], ["AB-1243", "AB-1235", "AB1235"], "another identifier"),
    ("12A", ["12a", "12A."], ["12", "12B", "12 B"], "another seat"),
    ("12 km/h", ["12 kph", "12km/h", "12.0 km/h", "12 km / h"],
     ["12 m/h", "12 m/s", "12 mph", "13 km/h", "120 km/h"], "another speed"),
    ("12 km", ["12 km", "12.0 km", "12 kilometres", "12km", "12\u00a0km", "12 Km"],
     ["12 m", "12 mi", "12 cm", "1.2 km", "-12 km", "12 kg"], "another length"),
    ("80 m", ["80 metres", "80 meter"], ["80 km", "80 s", "80 mm"], "another unit"),
    ("5 MW", ["5 megawatts", "5.0 MW"], ["5 mW", "5 kW", "5 W", "50 MW"], "another unit"),
    ("$5", ["5 dollars", "5 USD", "\\$5", "$5.00"], ["€5", "£5", "$50", "-$5", "5 euros"],
     "another amount"),
    ("50%", ["50 percent", "50\\%", "50 per cent", "50.0%"], ["51%", "5%", "500%", "50 km"],
     "another share"),
    ("90°", ["90 degrees", "90^\\circ", "90^{\\circ}", "90^∘"], ["91°", "9°", "90 °C"], "another angle"),
    ("20 °C", ["20°C", "20 ℃", "20 degrees Celsius"], ["20 °F", "21 °C", "-20 °C"],
     "another temperature"),
    ("25 m^2", ["25 m²", "25 square metres"], ["25 m", "25 m^3", "25 cm^2"], "another area"),
    ("3,4", ["3, 4", "3;4", "(3, 4)", "3 and 4"], ["34", "3.4", "4,3", "3", "3,4,5", "3,5"],
     "a list of two numbers"),
    ("(0, 1)", ["(0,1)", "0, 1"], ["[0, 1]", "(1, 0)", "{0, 1}"], "another interval"),
    ("red, green and blue", ["red, green, blue", "Red, Green and Blue", "red, green, and blue",
                             "red; green; blue"],
     ["red, green", "blue, green, red", "red green", "red, green or blue", "red, green, blue, black"],
     "another list"),
    ("TX", ["Texas", "tx", "texas."], ["Utah", "UT", "T", "Tex"], "another state"),
    ("West Virginia", ["WV", "west virginia"], ["VA", "Virginia", "WVA"], "another state"),
    ("Austin, Texas", ["Austin, TX", "austin, texas"], ["Austin", "Dallas, TX", "Austin, UT"],
     "another place"),
    ("Co", ["co"], ["Colorado", "Cu", "C"], "cobalt is not a state"),
    ("1/2", ["0.5", "\\frac{1}{2}", "½", ".5", "1 / 2", "2/4"], ["1/3", "0.05", "2", "-1/2", "12"],
     "another number"),
    ("1 1/2", ["1½", "3/2", "1.5"], ["11/2", "1/2", "1.05"], "a mixed number"),
    ("twelve", ["12", "Twelve"], ["20", "two", "eleven"], "another number"),
    ("21", ["twenty-one", "twenty one", "+21", "21.00"], ["20", "12", "-21", "2.1"], "another number"),
    ("1500000", ["1.5 million", "1,500,000", "1.5e6", "1\u202f500\u202f000"],
     ["1.5", "1,500", "15 million", "150000", "1.5 billion"], "another number"),
    ("-5", ["−5", "– 5", "-5.0"], ["5", "+5", "-50", "−6"], "the sign counts"),
    ("0", ["0.00", "-0", "zero"], ["0.001", "1e-9", "nan", "o", "false"], "0 equals 0 only"),
    ("5!", [], ["5", "120"], "a factorial mark is not an end mark"),
    ("AT&T", ["at&t", "AT & T"], ["AT, T", "AT and T", "ATT", "T&AT"], "a name is no list"),
    ("R&D", ["R & D"], ["R, D", "R and D", "D&R"], "a name is no list"),
    ("Q & A", ["Q and A", "Q&A"], ["Q, A", "A & Q"], "a name, or a pair in words"),
    ("salt and pepper", ["salt & pepper", "salt, pepper"], ["salt", "salt or pepper"], "a list"),
    ("20 °C", ["20 C", "20 degrees C", "20 celsius"], ["20 F", "20 K", "21 C"], "another temperature"),
    ("68 °F", ["68 F", "68 fahrenheit"], ["68 C", "69 F"], "another temperature"),
    ("1945", ["1 945"], ["1 946", "1 94", "19 45"], "another number"),
    ("1 000 000", ["1000000", "1,000,000", "one million"], ["1 000", "1 000 00", "100 000"],
     "another number"),
    ("12345 km", ["12 345 km"], ["12 346 km", "12 345 m"], "another length"),
    ("two hundred", ["200", "Two hundred"], ["2 hundredths", "two thousand", "201"], "another number"),
    ("1205", ["one thousand two hundred and five", "1 205"],
     ["one thousand two hundred and fifty", "one two zero five"], "another number"),
    ("500000", ["half a million", "five hundred thousand"], ["a million", "five hundred"],
     "another number"),
    ("200 km", ["two hundred km", "two hundred kilometres"], ["two hundred m", "two km"],
     "another length"),
    ("-3", ["minus three", "negative three"], ["three"], "the sign counts"),
    ("10 MB", ["10 megabytes", "10MB"], ["10 Mb", "10 mb", "10 megabits", "10 kB"], "bytes are no bits"),
    ("10 Mb", ["10 megabits", "10 Mbit"], ["10 MB", "10 megabytes"], "bits are no bytes"),
    ("100 Mb/s", ["100 Mbps"], ["100 MB/s", "100 Gb/s"], "another rate"),
    ("10 kB", ["10 KB", "10 kilobytes"], ["10 kb", "10 MB"], "another size"),
    ("3 g", ["3 grams", "3 Grams"], ["3 G", "3 kg"], "a symbol of one letter has its case"),
    ("3 G", [], ["3 g"], "a symbol of one letter has its case"),
    ("5 s", ["5 seconds"], ["5 S"], "a symbol of one letter has its case"),
    ("12 KM", ["12 km"], ["12 M"], "another length"),
    ("nan", ["NaN"], ["inf", "0", "none"], "another text"),
    ("true", ["True", "TRUE."], ["1", "yes", "false"], "another word"),
    ("10:30", ["10:30."], ["22:30", "10:31", "1030", "10.30"], "another time"),
    ("2024-01-05", [], ["2024-01-06", "2024-05-01", "2024-01-5", "20240105"], "another date"),
    ("C++", ["c++"], ["C", "C#", "C+"], "another language"),
    ("A*", ["a*"], ["A", "A**"], "the star is part of the name"),
    ("O'Neill", ["O’Neill"], ["ONeill", "O'Neil"], "another name"),
    ("Jean-Luc", ["Jean\u2010Luc", "jean\u2013luc"], ["Jean Luc", "JeanLuc", "Jean"], "another name"),
    ("\\sqrt{2}", ["√2", "$\\sqrt{2}$"], ["√3", "2", "1.414"], "a root is exact"),
    ("pi", [], ["3.14", "3.14159", "p"], "another text"),
    ("muisanmyg", [], ["gymnasium", "muisanmy", "muisan myg"], "letters are in another order"),
]  # fmt: skip
# Mode, response, expected answer, reward, why.
PLACES: list[tuple[str, str, str, float, str]] = [
    ("final_answer", "Answer: Paris", "Paris", 1.0, "the usual form"),
    ("final_answer", "**Answer:** Paris", "Paris", 1.0, "emphasis around the marker"),
    ("final_answer", "**Answer**: Paris", "Paris", 1.0, "emphasis around the word"),
    ("final_answer", "**Final Answer: Paris**", "Paris", 1.0, "emphasis around the line"),
    ("final_answer", "Final answer：Paris", "Paris", 1.0, "a full-width colon"),
    ("final_answer", "Answer: $\\boxed{Paris}$", "Paris", 1.0, "a box behind the marker"),
    ("final_answer", "So \\boxed{Paris}", "Paris", 1.0, "a box without a marker"),
    ("final_answer", "Answer: Rome\nNo. Answer: Paris", "Paris", 1.0, "the last answer counts"),
    ("final_answer", "Answer: Paris\nAnswer: Rome", "Paris", 0.0, "the last answer counts"),
    ("final_answer", "Answer: Paris, Rome, Oslo", "Paris", 0.0, "several answers are none"),
    ("final_answer", "Answer: It could be Paris", "Paris", 0.0, "a sentence is not the answer"),
    ("final_answer", "Paris", "Paris", 0.0, "no marker and no box"),
    ("final_answer", "End with 'Final answer: <answer>'.", "Paris", 0.0, "the prompt's own words"),
    ("boxed", "\\boxed{80}", "80", 1.0, "the usual form"),
    ("boxed", "\\boxed{8} no, \\boxed{80}", "80", 1.0, "the last box counts"),
    ("boxed", "\\boxed{\\textbf{Paris}}", "Paris", 1.0, "bold text in a box"),
    ("boxed", "\\boxed{80\\text{ km}}", "80 km", 1.0, "a unit as text"),
    ("boxed", "\\boxed{8{,}000}", "8000", 1.0, "grouped digits"),
    ("boxed", "\\boxed{8\\,000}", "80", 0.0, "another number"),
    ("boxed", "Answer: 80", "80", 0.0, "no box"),
    ("boxed", "\\boxed{}", "80", 0.0, "an empty box"),
    ("boxed", "\\boxed{80} \\boxed{79}", "80", 0.0, "the last box counts"),
    ("last_line", "So\n\nAmazon\n", "Amazon", 1.0, "the usual form"),
    ("last_line", "So\n```\nAmazon\n```", "Amazon", 1.0, "a fence around the line"),
    ("last_line", "So\n**Amazon**", "Amazon", 1.0, "emphasis"),
    ("last_line", "Amazon\nNile", "Amazon", 0.0, "the last line counts"),
    ("last_line", "Amazon\nDone", "Amazon", 0.0, "the last line counts"),
    ("full_response", "muisanmyg\n", "muisanmyg", 1.0, "the usual form"),
    ("full_response", "```\nmuisanmyg\n```", "muisanmyg", 1.0, "a fence around all of it"),
    ("full_response", "`muisanmyg`", "muisanmyg", 1.0, "code"),
    ("full_response", "It is muisanmyg", "muisanmyg", 0.0, "words beside it"),
    ("full_response", "", "muisanmyg", 0.0, "nothing"),
    ("full_response", "I'm sorry, I can't do that.", "muisanmyg", 0.0, "a refusal"),
]
# Expected answer, response's answer, reward: where a row says that case matters.
LETTERS: list[tuple[str, str, float]] = [
    ("Co", "Co", 1.0), ("Co", "CO", 0.0), ("Co", "co", 0.0), ("Co", "**Co**", 1.0),
    ("Co", '"Co"', 1.0), ("Co", "Co.", 1.0), ("Co", "C o", 0.0), ("Co", "Co (cobalt)", 0.0),
    ("5", "5.0", 0.0), ("5", "5 km", 0.0), ("main.py", "main.py", 1.0), ("main.py", "Main.py", 0.0),
    ("a_b", "a_b", 1.0), ("a_b", "ab", 0.0), ("x-y", "x–y", 0.0),
]  # fmt: skip


def _row(expected: str, mode: str = "final_answer", **more: Any) -> dict[str, Any]:
    return {"expected_answer": expected, "extraction_mode": mode} | more


def _texts() -> Iterator[dict[str, Any]]:
    for expected, same, other, why in TEXTS:
        for answer in (expected, *same):
            clothes = {"clothes": True} if answer != expected else {}
            yield case(
                _row(expected), f"Answer: {answer}", 1.0, "the same in another form", **clothes
            )
        for answer in other:
            yield case(_row(expected), f"Answer: {answer}", 0.0, why)


def _numbers() -> Iterator[dict[str, Any]]:
    """Decimals against each other; exact arithmetic says which are equal."""
    chance = random.Random(5)
    for _ in range(40):
        digits, places = chance.randrange(1, 10**7), chance.randrange(0, 5)
        gold = Fraction(digits, 10**places)
        written = f"{digits / 10**places:.{places}f}"
        other = chance.choice([digits + 1, digits - 1, digits * 10, -digits, digits + 10**3])
        forms = [written + ("0" if places else ".00"), f"{digits}e-{places}", f"+{written}"]
        for form in forms:
            assert Fraction(form) == gold
            yield case(_row(written), f"Answer: {form}", 1.0, "an equal number",
                       source="exact arithmetic", clothes=True)  # fmt: skip
        wrong = f"{other / 10**places:.{places}f}"
        assert Fraction(wrong) != gold
        yield case(_row(written), f"Answer: {wrong}", 0.0, "another number",
                   source="exact arithmetic")  # fmt: skip
    near = [("200", "201", 0.01, 1.0), ("200", "203", 0.01, 0.0), ("-200", "200", 0.01, 0.0),
            ("0", "0.0001", 0.01, 0.0), ("1e-30", "1.005e-30", 0.01, 1.0), ("200", "201", 0, 0.0),
            ("200 m", "201 km", 0.01, 0.0), ("1e-30", "2e-30", 0.01, 0.0)]  # fmt: skip
    for expected, answer, tolerance, right in near:
        row = _row(expected, number_tolerance=tolerance)
        yield case(row, f"Answer: {answer}", right, "the row's own tolerance")


def _cases() -> Iterator[dict[str, Any]]:
    yield from _texts()
    for mode, response, expected, right, why in PLACES:
        usual = "usual" in why or not right
        yield case(_row(expected, mode), response, right, why, **{} if usual else {"clothes": True})
    for expected, answer, right in LETTERS:
        row = _row(expected, case_sensitive=True)
        yield case(row, f"Answer: {answer}", right, "the letters as they are")
    yield from _numbers()
    for tolerance in (1, -0.1, "1", True):
        row = _row("5", number_tolerance=tolerance)
        yield case(row, "Answer: 5", None, "not a tolerance")
    yield case(_row(" "), "Answer: 5", None, "no expected answer")
    yield case({"expected_answer": "5"}, "Answer: 5", None, "the row does not say where it stands")


if __name__ == "__main__":
    write("string_match", _cases())
