"""The program in an answer: fences of all kinds, and what stands between them."""

from __future__ import annotations

import pytest

from gymmesh_resource.environments.code.answers import program_of
from gymmesh_resource.environments.code.extract import last_block

CASES = {
    "a block": ("```python\nprint(1)\n```", "print(1)"),
    "tildes": ("~~~python\nprint(1)\n~~~", "print(1)"),
    "longer fences": ("````python\nprint(1)\n````", "print(1)"),
    "tildes with a space": ("~~~ python\nprint(1)\n~~~", "print(1)"),
    "cut off": ("Here:\n```python\nprint(1)", "print(1)"),
    "indented in a list": (
        "1. So:\n\n   ```python\n   for i in x:\n       print(i)\n   ```",
        "for i in x:\n    print(i)",
    ),
    "indented by a tab": ("\t```py\n\tprint(1)\n\t```", "print(1)"),
    "indented program": ("```python\n    return 1\n```", "    return 1"),
    "windows lines": ("```python\r\nprint(1)\r\n```\r\n", "print(1)"),
    "python3": ("```python3\nprint(1)\n```", "print(1)"),
    "capitals": ("```Python\nprint(1)\n```", "print(1)"),
    "no language": ("```\nprint(1)\n```", "print(1)"),
    "words between blocks": (
        "```python\nprint(1)\n```\nIt prints:\n```\n1\n```\n",
        "print(1)",
    ),
    "output as text": ("```python\nprint(1)\n```\n```text\n1\n```", "print(1)"),
    "a fence in prose after it": ("```python\nprint(1)\n```\nI used ``` for it.", "print(1)"),
    "a stray fence after it": ("```python\nprint(1)\n```\nThat is all.\n```", "print(1)"),
    "an input before it": ("```\n3 4\n```\n```python\nprint(1)\n```", "print(1)"),
    "the last of two": ("```python\nprint(0)\n```\nNo:\n```python\nprint(1)\n```", "print(1)"),
    "the last one unnamed": ("```python\nprint(0)\n```\nNo:\n```\nprint(1)\n```", "print(1)"),
    "closed rather than cut off": ("```python\nprint(1)\n```\n```python\npri", "print(1)"),
    "words on the line of the fence": ("So: ```python\nprint(1)\n```", "print(1)"),
    "the end on the line of the code": ("```python\nprint(1)```", "print(1)"),
    "on one line": ("```print(1)```", "print(1)"),
    "fence in a text": ("```python\ns = '```'\nprint(1)\n```", "s = '```'\nprint(1)"),
    "tildes in backticks": ("```python\ns = '''\n~~~\n'''\n```", "s = '''\n~~~\n'''"),
    "another language": ("```cpp\nint main() {}\n```", "int main() {}"),
    "none": ("print(1)", ""),
    "empty": ("", ""),
}


@pytest.mark.parametrize(("text", "program"), CASES.values(), ids=CASES)
def test_the_program_in_an_answer(text: str, program: str) -> None:
    assert program_of(text) == program


def test_the_reference_takes_what_is_between_the_last_two_fences() -> None:
    assert last_block("```python\nprint(1)\n```\nIt prints:\n```\n1\n```") == "1"
    assert last_block("```python\nprint(1)\n```\nThat is all.\n```") == "That is all."
    assert last_block("```python\nprint(1)") == ""


@pytest.mark.parametrize("part", ["```\n", "`", "~~~python\n", "a = ", " ", "x,", "```a```\n"])
def test_reading_is_linear(part: str) -> None:
    # What is quadratic would outlast the test's time limit.
    assert len(program_of(part * 100_000)) <= len(part) * 100_000
