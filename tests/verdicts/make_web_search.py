r"""Makes cases/web_search.jsonl: which answers agree is written here by hand.

Run it as `.venv/bin/python -m tests.verdicts.make_web_search`.
"""

# ruff: noqa: E501  # a line a case reads better than its parts
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

# Accepted answers, messages that agree, messages that don't.
ANSWERS: list[tuple[Any, list[str], list[str]]] = [
    ("Torsund", ["Torsund", "TORSUND", "torsund.", "**Torsund**", "“Torsund”", "Answer: Torsund", "So:\n**Final answer:** Torsund", "I think <answer>Torsund</answer>!"],
     ["Marby", "Torsundet", "Tor", "not Torsund", "Torsund or Marby", "She was born in Torsund", "Answer: Marby", "Answer: Torsund\nAnswer: Marby", "", "...", "expected_answer", ".*", "I don't know"]),
    ("Velle fjord", ["the Velle fjord", "velle  fjord", "Answer:\n\nVelle fjord"], ["Velle", "fjord", "fjord Velle", "Velle fjords"]),
    (["7", "seven"], ["7", "seven", "Seven.", "7.0", "Answer: **7**", "７", "+7"], ["17", "77", "-7", "7%", "70", "eight", "7 or 8", "0.7", "07"]),
    ("3400", ["3,400", "3400.0", "3.4e3", "3.4 thousand", "34 × 10^2"], ["340", "34000", "3.400", "3,4", "-3400", "3401"]),
    ("3.5", ["3.50", "7/2", "3 1/2", "3½"], ["3,5", "35", "3.6", "-3.5", "3"]),
    ("-5", ["−5", "-5.0", "–5"], ["5", "+5", "5-", "-50"]),
    ("5%", ["5 %", "5 percent", "5.0%", "5 per cent"], ["5", "50%", "0.5%", "5 km"]),
    ("$5", ["5 dollars", "$5.00", "5 USD"], ["5", "€5", "$50", "5%"]),
    ("62 metres", ["62 meters", "62 m", "62.0 metres"], ["62 feet", "62", "62 km", "26 metres"]),
    ("1871-05-03", ["Answer: 1871-05-03"], ["1871-05-04", "1871-03-05", "1871"]),
    ("Café", ["Cafe\u0301", "CAFÉ"], ["Cafe", "Caffè"]),
    ("keepers' house", ["keepers’ house", "Keepers' House"], ["keeper house", "house"]),
    ("東京", ["東京。", "Answer: 東京"], ["京都", "京東", "東"]),
    ("Jonas Ek", ["jonas ek", "Jonas  Ek!"], ["Ek, Jonas", "Ek", "Jonas", "Jonas Ek Ek"]),
    (1905, ["1905", "1905.", "1,905"], ["1906", "1950", "905", "around 1905 or 1906"]),
]  # fmt: skip


def _cases() -> Iterator[dict[str, Any]]:
    for accepted, same, other in ANSWERS:
        row = {"expected_answer": accepted}
        own = str(accepted[0] if isinstance(accepted, list) else accepted)
        yield case(row, own, 1.0, "the accepted answer")
        for message in same:
            clothes = {"clothes": True} if message != own else {}
            yield case(row, message, 1.0, "the same in another form", **clothes)
        for message in other:
            yield case(row, message, 0.0, "another answer")
    refused: list[Any] = [None, "", [], True, {"a": 1}]
    for wrong in refused:
        yield case({"expected_answer": wrong}, "x", None, "not an accepted answer")


if __name__ == "__main__":
    write("web_search", _cases())
