"""Makes cases/user_simulator.jsonl: what a message of the model's states.

Run it as `.venv/bin/python -m tests.verdicts.make_user_simulator`.
"""

# ruff: noqa: E501  # a line a fact reads better than its parts
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

# A fact; messages that state it; such that do not.
FACTS: list[tuple[str, list[str], list[str]]] = [
    ("15", ["15", "You have 15 pieces.", "**15**", "(15)", "15.0", "- 15", "１５", "for 2, 15", "You have 15!"],
     ["-15", "−15", "15%", "15 %", "15 percent", "150", "115", "1.15", ".15", "15.5", "1/15", "15/2", "15:30", "9:15", "10-15", "15–20", "15,000", "15 000", "15kg", "<15", "-$15", "fifteen", ""]),
    ("$15", ["You get $15 back.", "$15.00", "$15!"], ["$150", "$15.50", "$1,015", "-$15", "15", "$ 15"]),
    ("W1001", ["Order W1001 is cancelled.", "#w1001", "W**1001**"], ["W10011", "XW1001", "W1002", "W 1001"]),
]  # fmt: skip


def _row(**expected: Any) -> dict[str, Any]:
    return {
        "user": {"persona": "Tom", "goal": "Ask."},
        "state": {"customers": {}, "orders": {}},
        "expected": expected,
    }


def cases() -> Iterator[dict[str, Any]]:
    """Each fact as one that must be stated, and as one that must not be."""
    more = {"judge": ["Hello, what about my order?"], "session": True}
    for fact, stated, other in FACTS:
        for text in stated:
            yield case(_row(say=[fact]), text, 1.0, f"states {fact}", clothes=True, **more)
        for text in other:
            yield case(_row(say=[fact]), text, 0.0, f"does not state {fact}", **more)
        yield case(_row(dont_say=[fact]), stated[0], 0.0, f"states {fact}", **more)
        yield case(_row(dont_say=[fact]), other[0], 1.0, f"does not state {fact}", **more)


if __name__ == "__main__":
    write("user_simulator", cases())
