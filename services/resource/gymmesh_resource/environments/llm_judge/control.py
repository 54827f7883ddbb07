"""Distinguishes an answer that prevents a verdict from a judge that has no verdict on any answer.

An answer can prevent a verdict: it may be longer than the judge's context, the endpoint may refuse
it, or it may talk the judge out of its task. If this were a failure, which is retried, a policy
could cause it on purpose. So the judge is then asked the same question about a harmless answer. If
the judge has a verdict on the harmless answer, the policy's answer was the cause and gets no
reward.
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
    """The judge has a verdict on a harmless answer, but not on this one; the text is the reason."""


class AnswerRefused(AnswerUnjudged):
    """The judge's endpoint refuses this answer: the answer is too long, or not allowed."""


async def judged(ask: Callable[[str], Awaitable[T | None]], answer: str) -> T | None:
    """The judge's verdict on the answer. Without a verdict, the judge is asked about `HARMLESS`.

    `ask` asks the judge about an answer; None: no verdict. Returns None if the judge has no verdict
    on either answer. Raises `AnswerUnjudged`, and MeshError MODEL_* for failures of the model.
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
