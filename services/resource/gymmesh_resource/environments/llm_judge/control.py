"""Tells an answer that leaves its judge without a verdict from a judge that has none to give.

A judge may be left without a verdict by what it is shown: by an answer that is longer than its
context, that its endpoint refuses, or that talks it out of its task. Were that a failure, which is
retried, a policy could choose it. So the same question is then put about a harmless answer: where
the judge has a verdict on that one, it is the answer's doing, and worth nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

IS_FACE = True  # see tools/import_faces.py

T = TypeVar("T")
HARMLESS = "I do not know."
# What an endpoint answers to a text that is too long for it, or that it does not take.
_REFUSED = (
    errors_pb2.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
    errors_pb2.ERROR_REASON_MODEL_REQUEST_REFUSED,
)


class AnswerUnjudged(Exception):
    """The judge has no verdict on this answer, but has one on a harmless one; the text says why."""


class AnswerRefused(AnswerUnjudged):
    """The judge's endpoint does not take this answer: it is too long for it, or not allowed."""


async def judged(ask: Callable[[str], Awaitable[T | None]], answer: str) -> T | None:
    """What `ask` finds about the answer, asked about `HARMLESS` too where it finds nothing.

    `ask` asks the judge about an answer; None is no verdict. Gives None where the judge has no
    verdict on either. Raises `AnswerUnjudged`, and MeshError MODEL_* for what is not about answers.
    """
    verdict: T | None = None
    unjudged = AnswerUnjudged("the judge returned no verdict on this answer")
    try:
        verdict = await ask(answer)
    except MeshError as error:
        if error.reason not in _REFUSED:
            raise
        unjudged = AnswerRefused(f"the judge's endpoint refused this answer: {error.reason_name}")
    if verdict is None and await ask(HARMLESS) is not None:
        raise unjudged
    return verdict
