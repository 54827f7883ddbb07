"""What is done in the test's episodes, by both sides: decided by what was observed so far.

Imported by the framework's interpreter as well: it needs nothing but the standard library.
"""

from __future__ import annotations

from typing import Any


def corridor(observations: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The next action; None: the policy stops."""
    last = observations[-1]
    number = len(observations)
    if number > 1 and last["position"] == 3 and number % 5 == 0:
        return None
    if (last["position"] + last["goal"] + number) % 4 == 0:
        return {"move": "left"}
    return {"move": "right", "steps": 1 + number % 2}


def tools(answers: list[str]) -> tuple[str, dict[str, Any]] | None:
    """The next tool with its arguments; None: the policy stops. `answers`: the tools' so far."""
    if len(answers) < 2:
        return "add", {"a": len(answers), "b": 4}
    if len(answers) == 2:
        return "fail", {}
    return "submit", {"value": int(answers[0]) + int(answers[1])}
