"""The functions that the environment runs in worker processes, and its checks of a task.

The imports are late: the modules behind them need the extra `math`, without which the
environment can still be imported and listed.
"""

from __future__ import annotations

import importlib

from gymmesh_resource.environments.math.score import MathScore


def warm_up() -> None:
    """Import the libraries, build their parsers and judge once, so that later calls are quick."""
    from gymmesh_resource.environments.math.verdict import warm_up

    warm_up()


def load() -> None:
    """Import the rules, without the library."""
    importlib.import_module(f"{__package__}.verdict")


def check_expected(expected_answer: str) -> None:
    """Whether anything can be judged against an answer, in microseconds.

    Raises `ExpectedAnswerError`.
    """
    from gymmesh_resource.environments.math.verdict import read_expected

    read_expected(expected_answer)


def compare_expected(expected_answer: str) -> None:
    """Compare an expected answer with itself. Raises `ExpectedAnswerError`."""
    from gymmesh_resource.environments.math.verdict import check_expected

    check_expected(expected_answer)


def judge(
    expected_answer: str, response_text: str, prompt: str, evaluated: bool | None
) -> MathScore:
    """The right verdict. Raises `ExpectedAnswerError`."""
    from gymmesh_resource.environments.math.verdict import judge

    return judge(expected_answer, response_text, prompt, evaluated)
