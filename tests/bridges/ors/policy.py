"""What is done in the test's episodes, by both sides: decided by what was shown so far.

Imported by the framework's interpreter as well: it needs nothing but the standard library.
"""

from __future__ import annotations

from typing import Any


def sums(shown: list[str]) -> tuple[str, dict[str, Any]]:
    """The next tool with its arguments. The first that was shown is the prompt."""
    left, right = map(int, shown[0].rstrip("?").split(" + "))
    if (left + right) % 3 == 0 and len(shown) == 1:
        return "hint", {}
    if (left * right) % 5 == 0 and len(shown) < 3:
        return "submit", {"anser": "typo"}
    return "submit", {"answer": str(left + right + (left % 2))}


def message(prompt: str) -> str:
    """The last message of an environment whose terminal tool judges that."""
    left, right = map(int, prompt.rstrip("?").split(" + "))
    return str(left + right + (left % 2))
