"""Makes cases/code.jsonl: programs whose verdict is known from the task, in answers of all forms.

Run it as `.venv/bin/python -m tests.verdicts.make_code`.
"""

# ruff: noqa: E501  # a line a program reads better than its parts
from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write


def _tests(inputs: list[str], outputs: list[str], **more: str) -> dict[str, Any]:
    return {"verifier_metadata": {"unit_tests": {"inputs": inputs, "outputs": outputs, **more}}}


SUM = _tests(["1 2\n", "-3 10\n"], ["3\n", "7\n"])
LINES = _tests(["3\n"], ["1\n2\n3\n"])
THIRD = _tests(["1\n"], ["0.333333333\n"])
BITS = _tests(["1", "2"], ['"0010"', '"0100"'], fn_name="bits")
EVEN = _tests(["2", "-7"], ["true", "false"], fn_name="even")
HALVES = _tests(["1", "3"], ["[0.5]", "[0.333333333]"], fn_name="parts")
DOUBLE = _tests(["2", "-7"], ["4", "-14"], fn_name="double")
# Tasks, each with programs and whether they are right.
PROGRAMS: list[tuple[dict[str, Any], list[tuple[str, bool, str]]]] = [
    (SUM, [
        ("print(sum(map(int, input().split())))", True, "the sum"),
        ("a, b = map(int, input().split())\nprint(a + b)", True, "the sum in two steps"),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())))\nsys.exit(0)", True, "ends with exit code 0"),
        ("def main():\n    a, b = map(int, input().split())\n    print(a + b)\nif __name__ == '__main__':\n    main()", True, "below a main guard"),
        ("print(sum(map(int, input().split())))\nraise SystemExit", True, "ends by SystemExit"),
        ("print(float(sum(map(int, input().split()))))", True, "the same number"),
        ("print(sum(map(int, input().split())), end='')", True, "no line break at the end"),
        ("print(' ', sum(map(int, input().split())), ' ')", True, "spaces around the line"),
        ("import sys\nprint(sum(map(int, input().split())))\nsys.exit(1)", False, "ends with exit code 1"),
        ("import sys\nprint(sum(map(int, input().split())))\nsys.exit(3)", False, "ends with exit code 3"),
        ("import sys\nprint(sum(map(int, input().split())))\nsys.exit('bad')", False, "ends with a message"),
        ("import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(2)", False, "ends with exit code 2"),
        ("print(sum(map(int, input().split())))\n1 / 0", False, "fails after the output"),
        ("print(3)", False, "right for the first test alone"),
        ("print(sum(map(int, input().split())) + 1)", False, "off by one"),
        ("print('Sum:', sum(map(int, input().split())))", False, "a word too many"),
        ("a, b = input().split()\nprint(a + b)", False, "joins texts"),
        ("pass", False, "prints nothing"),
        ("print(sum(map(int, input().split()))", False, "a bracket too few"),
        ("exit()", False, "ends at once"),
    ]),
    (LINES, [
        ("for n in range(int(input())): print(n + 1)", True, "a line each"),
        ("print('\\n'.join(str(n + 1) for n in range(int(input()))))", True, "in one call"),
        ("for n in range(int(input())): print(n)", False, "begins with 0"),
        ("print(*range(1, int(input()) + 1))", False, "all on one line"),
        ("for n in range(int(input())): print(n + 1)\nprint('done')", False, "a line too many"),
    ]),
    (THIRD, [
        ("print(f'{int(input()) / 3:.9f}')", True, "nine digits"),
        ("print(f'{int(input()) / 3:.9f}000')", True, "more zeros"),
        ("print(round(int(input()) / 3, 3))", False, "three digits"),
        ("print('nan')", False, "no number"),
        ("print('1/3')", False, "a fraction"),
    ]),
    (DOUBLE, [
        ("def double(x): return 2 * x", True, "twice"),
        ("double = lambda x: x + x", True, "a lambda"),
        ("class Solution:\n    def double(self, x):\n        return x * 2", True, "a method"),
        ("def double(x): return 3 * x", False, "three times"),
        ("def double(x): print(2 * x)", False, "prints it"),
        ("def twice(x): return 2 * x", False, "another name"),
        ("def double(x): return 2 * x + 1", False, "off by one"),
        ("import sys\ndef double(x): sys.exit(0)", False, "ends the program"),
    ]),
    (BITS, [
        ("def bits(x): return f'{2 * x:04b}'", True, "four digits"),
        ("def bits(x): return bin(2 * x)[2:]", False, "without the zeros in front"),
        ("def bits(x): return int(bin(2 * x)[2:])", False, "a number for a text"),
    ]),
    (EVEN, [
        ("def even(x): return x % 2 == 0", True, "a truth value"),
        ("def even(x): return 1 - x % 2", False, "a number for a truth value"),
        ("def even(x): return str(x % 2 == 0).lower()", False, "a text for a truth value"),
    ]),
    (HALVES, [
        ("def parts(x): return [1 / 2 if x == 1 else 1 / x]", True, "numbers in a list"),
        ("def parts(x): return [str(round(1 / (2 if x == 1 else x), 9))]", False, "texts in a list"),
    ]),
    (_tests(["1000\n"], ["2000\n"]), [
        ("print(2 * int(input()))", True, "twice"),
        ("print(f'{2 * int(input()):_}')", False, "an underscore in the number"),
    ]),
]  # fmt: skip
# Answers with a program, for which `{}` stands.
FORMS = [
    "```python\n{}\n```", "~~~python\n{}\n~~~", "```py\n{}\n```", "```\n{}\n```", "Here:\n\n```python\n{}\n```\nDone.",
    "```python\n{}", "````python\n{}\n````", "```Python3\n{}\n```", "~~~\n{}\n~~~", "So: ```python\n{}\n```",
    "```python\n{}\n```\nIt prints:\n```\n3\n```", "```python\n{}\n```\nIt prints:\n```text\n3\n```\nas wanted.",
    "```python\n{}\n```\nI put it between ``` as asked.", "Input:\n```\n1 2\n```\nProgram:\n```python\n{}\n```",
    "```python\nprint('no')\n```\nBetter:\n```python\n{}\n```", "```python\n{}\n```\nThat is all.\n```",
]  # fmt: skip


def _indented(code: str) -> str:
    """A program in a list's item."""
    lines = "\n".join(f"   {line}" for line in code.split("\n"))
    return f"1. Run this:\n\n   ```python\n{lines}\n   ```"


def cases() -> Iterator[dict[str, Any]]:
    """Right programs in several forms, wrong ones in one."""
    chance = random.Random(1)
    for row, programs in PROGRAMS:
        for code, right, why in programs:
            forms = chance.sample(FORMS, 4 if right else 2)
            for form in forms:
                more = {"clothes": True} if right else {}
                yield case(row, form.format(code), float(right), why, **more)
            if right and "\n" in code:
                yield case(row, _indented(code), 1.0, f"{why}, indented", clothes=True)
    for text, why in (
        ("", "nothing"), ("I'm sorry, I can't do that.", "a refusal"), ("3", "a number"), ("```python\n```", "an empty block"),
        ("```text\n3\n```", "output alone"), ("```cpp\nint main() { return 0; }\n```", "another language"),
        ("```python\nprint(sum(map(int, input().split())))\n```\n```python\nprint(0)\n```", "the last program is wrong"),
    ):  # fmt: skip
        yield case(SUM, text, 0.0, why)
    for row, why in (
        (_tests([], []), "no test"), (_tests(["1\n"], [""]), "a program that does nothing would pass"),
        (_tests(["1\n"], []), "outputs are missing"), ({}, "no tests at all"), (_tests(["x"], ["1"], fn_name="f"), "arguments that are not JSON"),
        ({**SUM, "verifier_metadata": {**SUM["verifier_metadata"], "language": "cpp"}}, "another language"),
    ):  # fmt: skip
        yield case(row, "```python\ndef double(x): return 2 * x\nprint(1)\n```", None, why)


if __name__ == "__main__":
    write("code", cases())
