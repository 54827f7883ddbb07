"""Makes cases/llm_judge.jsonl: what a scripted judge says, and the reward that it means.

Run it as `.venv/bin/python -m tests.verdicts.make_llm_judge`.
"""

# ruff: noqa: E501  # a line a reply reads better than its parts
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tests.verdicts.case_files import case, write

EQUAL, OTHER, YES, NO = "[[A=B]]", "[[A!=B]]", "[[YES]]", "[[NO]]"
REFERENCE = {"expected_answer": "12 km"}
RUBRIC = [
    {"question": "Does it insult the reader?", "weight": -2},
    {"question": "Is it right?", "weight": 1},
]

# Replies about equivalence; None: none of them is a verdict, so that the judge is asked again.
EQUIVALENCE: list[tuple[str, bool | None, str]] = [
    (EQUAL, True, "a label"), (OTHER, False, "a label"), (f"Both are 12 km.\n{EQUAL}", True, "reasons first"),
    (f"12 is not 13.\n{OTHER}", False, "reasons first"), (f"**{EQUAL}**", True, "a label in bold"),
    (f"Verdict:\n`{OTHER}`", False, "a label as code"), (f"So {EQUAL}.", True, "one label in a sentence"),
    (f"I will write {EQUAL} if they are equivalent and {OTHER} if not. 12 is not 13.\n{OTHER}", False, "the rule repeated first"),
    (f"I will write {EQUAL} if they are equivalent and {OTHER} if not. They are.\n{EQUAL}", True, "the rule repeated first"),
    (f"{OTHER}\n(It would be {EQUAL} for 12 km.)", False, "the rule repeated afterwards"),
    (f"{EQUAL}\nWait: the units differ.\n{OTHER}", False, "another mind at the end"),
    (f"{OTHER}\nWait: they do not differ.\n\n{EQUAL}\n", True, "another mind at the end"),
    (f"<think>{EQUAL}?</think>{OTHER}", False, "a label in thoughts"), (f"<think>{OTHER}?</think>\n{EQUAL}", True, "a label in thoughts"),
]  # fmt: skip
CRITERION: list[tuple[str, bool, str]] = [
    (YES, True, "a label"), (NO, False, "a label"), (f"It is.\n{YES}", True, "reasons first"), (f"It is not.\n**{NO}**", False, "in bold"),
    (f"{NO}\nIt would be {YES} if it were.", False, "the rule repeated afterwards"), (f"{YES} if it is.\n{NO}", False, "the rule repeated first"),
    ("It is.\nYES", True, "a plain last line"), ("It is not.\nNo.", False, "a plain last line"), (f"<think>{YES}</think>{NO}", False, "thoughts"),
]  # fmt: skip
SCORES: list[tuple[str, float | None, str]] = [
    ("[[10]]", 1.0, "the best"), ("[[1]]", 0.0, "the worst"), ("[[5.5]]", 0.5, "half way"), ("Good.\n[[10/10]]", 1.0, "out of ten"),
    ("[[1 / 10]]", 0.0, "out of ten with spaces"), ("[[10.0]]", 1.0, "with a point"), ("[[9]] for style, but\n[[1]]", 0.0, "the last counts"),
    ("**[[10]]**", 1.0, "in bold"), ("<think>[[2]]</think>[[10]]", 1.0, "thoughts"), ("[[5/5]]", None, "out of five"), ("[[4/5]]", None, "out of five"),
    ("[[80/100]]", None, "out of a hundred"), ("[[11]]", None, "off the scale"), ("[[0]]", None, "off the scale"), ("[[-5]]", None, "off the scale"),
    ("[[9]] no, [[100]]", None, "off the scale at the end"), ("[[9]] no, [[1/5]]", None, "out of five at the end"), ("[[80%]]", None, "percent"),
    ("[[nan]]", None, "no number"), ("[[inf]]", None, "no number"), ("ten", None, "no label"), ("[[9 out of 5]]", None, "words"),
]  # fmt: skip


def _rewards(weights: Sequence[float], met: Sequence[bool]) -> dict[str, float]:
    """The reward of a rubric in each way: a criterion of negative weight is fulfilled by not being met."""
    good = [ok if weight > 0 else not ok for weight, ok in zip(weights, met, strict=True)]
    gained = sum(weight for weight, ok in zip(weights, met, strict=True) if ok)
    weighted = min(1.0, max(0.0, gained / sum(weight for weight in weights if weight > 0)))
    every, some = float(all(good)), float(any(good))
    return {"all": every, "min": every, "any": some, "max": some, "mean": sum(good) / len(good), "weighted": weighted}  # fmt: skip


def cases() -> Iterator[dict[str, Any]]:
    """Replies of each kind, and rubrics with every outcome."""
    for reply, verdict, why in EQUIVALENCE:
        more = {"clothes": True} if verdict else {}
        yield case(REFERENCE, "12 km", float(bool(verdict)), why, judge=[reply], **more)
    for reply, verdict, why in CRITERION:
        for passes in ("YES", "NO"):
            right = verdict == (passes == "YES")
            row = {"rubric": [{"question": "Is it long?", "pass_criteria": passes}]}
            more = {"clothes": True} if right else {}
            yield case(row, "12 km", float(right), f"{why}, {passes} passes", judge=[reply], **more)
    for reply, score, why in SCORES:
        more = {"clothes": True} if score else {}
        options = {"mode": "score", "unreadable": "skip"}
        yield case({}, "12 km", score, why, judge=[reply], options=options, **more)
    weights = [-2, 1]
    for met in product((True, False), repeat=2):
        for how, reward in _rewards(weights, met).items():
            # Criteria are asked side by side, in their order.
            replies = [YES if ok else NO for ok in met]
            yield case({"rubric": RUBRIC}, "12 km", reward, f"{how} of weights {weights}, met {list(met)}",
                       source="exact arithmetic", judge=replies, options={"aggregation": how})  # fmt: skip
    refused: list[tuple[dict[str, Any], str]] = [
        ({"rubric": []}, "no criterion"), ({"rubric": [{"question": "a", "weight": -1}]}, "nothing to gain"), ({}, "nothing to judge by"),
        ({"rubric": [{"question": "a", "pass_criteria": "MAYBE"}]}, "neither YES nor NO"), ({"rubric": [{"question": "a", "pass_criteria": "No."}]}, "neither YES nor NO"),
        ({"rubric": [{"question": "a", "weight": "2"}]}, "a weight as text"), ({"rubric": [{}]}, "no question"),
    ]  # fmt: skip
    for row, why in refused:
        yield case(row, "12 km", None, why, judge=[YES])
    for text in ("", "  \n"):
        yield case(REFERENCE, text, 0.0, "no answer", judge=[EQUAL])


if __name__ == "__main__":
    write("llm_judge", cases())
