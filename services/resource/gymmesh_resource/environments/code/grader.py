"""Compares a candidate's answers with what was expected, in a sandbox without the candidate.

The grader imports only what is sent along with it. A candidate can make a value that needs all
memory or time to read or to compare. Then only this process dies, and the service sees its end.

The order: `kind` is "stdio" or "call"; `nemo`: compare by NeMo Gym's rules. Then, for each test,
the expected output and the candidate's answer. The reply says that the test passed, or has the
problem and its detail.
"""

from __future__ import annotations

import json
import signal
import sys

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from typing import Any

    from gymmesh_resource.environments.code.compare import same_output, same_value
    from gymmesh_resource.environments.code.frames import (
        EXPECTED,
        FAILED,
        PASSED,
        READY,
        as_bytes,
        decode,
        open_channel,
    )
else:
    sys.path.insert(0, __file__.rpartition("/")[0])
    from compare import same_output, same_value
    from frames import EXPECTED, FAILED, PASSED, READY, as_bytes, decode, open_channel

_SHOWN = 300
# Of a processor, for one answer: right ones take some tens of milliseconds at most.
_ANSWER_CPU_S = 5.0
# Far from what overflows the stack of the parser, which is not written in Python.
_DEPTH = 5000


def short(value: object) -> str:
    """A value as text of limited length; a fixed text for a number too long to be written."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError, MemoryError):
        return "a value too large to be shown"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"


def problem_of_call(answer: dict[str, Any], expected: Any, nemo: bool) -> str:
    """What is wrong with a function's value; empty if it is right."""
    if "value" not in answer:
        return f"runtime error\n{short(answer.get('error'))}"
    value = decode(answer["value"])
    return "" if same_value(value, expected, nemo) else f"wrong answer\n{short(value)}"


def problem_of_output(answer: dict[str, Any], expected: str, nemo: bool) -> str:
    """What is wrong with a program's output; empty if it is right."""
    output, code = answer.get("stdout"), answer.get("exit")
    if type(code) is not int or code != 0 or not isinstance(output, str):
        return f"runtime error\n{short(answer.get('error') or f'exit code {code}')}"
    return "" if same_output(output, expected, nemo) else f"wrong answer\n{short(output)}"


def problem_of(kind: str, body: bytes, expected: Any, nemo: bool) -> str:
    """What is wrong with an answer, whatever the candidate wrote; empty if it is right."""
    try:
        answer = json.loads(body)
        if not isinstance(answer, dict):
            return "runtime error\nthe answer cannot be read"
        if kind == "call":
            return problem_of_call(answer, expected, nemo)
        return problem_of_output(answer, expected, nemo)
    except MemoryError:
        return "wrong answer\nthe value is too large to be compared"
    except Exception:  # candidates choose what is read here, and thus how that fails
        return "runtime error\nthe value cannot be read"


def main() -> None:
    """Compare answer after answer."""
    channel = open_channel()
    order = channel.order()
    sys.setrecursionlimit(_DEPTH)
    sys.set_int_max_str_digits(50_000)
    channel.write(READY)
    expected: Any = None
    while (given := channel.read()) is not None:
        if given[0] == EXPECTED:
            expected = json.loads(given[1])
            continue
        signal.setitimer(signal.ITIMER_PROF, _ANSWER_CPU_S)  # whose signal ends this process
        problem = problem_of(order["kind"], given[1], expected, order["nemo"])
        channel.write(FAILED if problem else PASSED, as_bytes(problem))


if __name__ == "__main__":
    main()
