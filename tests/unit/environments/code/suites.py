"""Small task rows that the tests' answers are judged by: all ask for the double of a number."""

from __future__ import annotations

from typing import Any


def unit_tests(inputs: list[str], outputs: list[str], name: str | None = None) -> dict[str, Any]:
    """A row of code_gen's kind."""
    tests = {"inputs": inputs, "outputs": outputs, "fn_name": name}
    return {"verifier_metadata": {"unit_tests": tests}}


def check(test: str) -> dict[str, Any]:
    """A row of HumanEval's kind; `test` is the body of `check(f)`."""
    prompt = 'def double(x: int) -> int:\n    """Twice x."""\n'
    return {"prompt": prompt, "test": f"def check(f):\n{test}", "entry_point": "double"}


SUITES: dict[str, dict[str, Any]] = {
    "stdio": unit_tests(["1\n2\n", "3\n1\n-5\n123\n"], ["4\n", "2\n-10\n246"]),
    "lines": unit_tests([""], ["a  b\n\nc\n"]),
    "float": unit_tests(["1\n", "2\n"], ["0.333333333\n", "0.666666667"]),
    "call": unit_tests(["2", "-7"], ["4", "-14"], "double"),
    "solution": unit_tests(["[1, 2]", "[]"], ["[2, 4]", "[]"], "double"),
    "search": unit_tests(["[3, 5]\n5", "[3, 5]\n4"], ["1", "-1"], "search"),
    "padded": unit_tests(["1", "2"], ['"0010"', '"0100"'], "double"),
    "infinite": unit_tests(["1"], ["Infinity"], "double"),
    "imported": unit_tests(["4\n6"], ["2"], "gcd"),
    "large": unit_tests(["250000000"], ["500000000"], "double"),
    "check": check("    assert f(2) == 4\n    assert f(-7) == -14\n"),
    "keyword": check("    assert f(x=2) == 4\n"),
    "raising": check(
        "    assert f(2) == 4\n"
        "    try: f(-1)\n"
        "    except ValueError: return\n"
        "    raise AssertionError('no error')\n"
    ),
    "lazy": check("    assert all(map(lambda y: y is True, map(f, [1, 2, 3])))\n"),
    "twice": check("    assert f(f(1)) == 4\n"),
    "swallowing": check("    try: f(2)\n    except BaseException: pass\n"),
}


def answer_of(case: dict[str, Any]) -> str:
    """A model's answer with a case's program; between fences unless `fence` is false."""
    code = str(case["code"] * case.get("repeat", 1))
    return f"Here:\n```python\n{code}\n```\nDone." if case.get("fence", True) else code
