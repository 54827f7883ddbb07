"""The judge finds each kind of thing that may go wrong, and nothing in what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError, to_status, unforeseen
from tests.fuzz.judge import (
    MIB,
    Answer,
    problems_of,
    problems_of_http,
    problems_of_log,
    problems_of_memory,
    problems_of_status,
)

Reason = errors_pb2.ErrorReason
GOOD = to_status(MeshError(Reason.ERROR_REASON_TASK_INVALID, "it has no answer"))
FAULT = to_status(unforeseen(KeyError("wanted"), "a call"))
TRACE = b'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 1'


def answered(status: Any = GOOD, **more: Any) -> Answer:
    code = next(one.name for one in grpc.StatusCode if one.value[0] == status.code)
    said = {"method": "a/B", "code": code, "details": status.message, **more}
    return Answer(**({"trailers": status.SerializeToString()} | said))


@pytest.mark.parametrize(
    "answer",
    [
        Answer("a/B", "OK", messages=[b"fine"]),
        answered(),
        answered(to_status(MeshError(Reason.ERROR_REASON_VERIFIER_FAULT, "the judge is silent"))),
        Answer("a/B", "CANCELLED", "Locally cancelled by application!"),
        Answer("a/B", "DEADLINE_EXCEEDED", "Deadline Exceeded", patient=False),
        answered(code="DEADLINE_EXCEEDED", patient=False),
        Answer("a/B", "RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (9 vs. 8)"),
        Answer("a/B", "UNIMPLEMENTED", "Method not found!"),
        Answer("grpc.health.v1.Health/Check", "NOT_FOUND", "", own=False),
    ],
)
def test_what_is_right(answer: Answer) -> None:
    assert problems_of(answer) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("a/B", "OK", messages=[b"so: " + TRACE]), "contains a traceback"),
        (answered(details=TRACE.decode()), "contains a traceback"),
        (Answer("a/B", "INVALID_ARGUMENT", "no"), "has no ErrorInfo"),
        (Answer("a/B", "INTERNAL", "no", own=False), "INTERNAL"),
        (Answer("a/B", "UNKNOWN", "Unexpected <class 'KeyError'>: 1"), "has no ErrorInfo"),
        (Answer("a/B", "DEADLINE_EXCEEDED", "Deadline Exceeded"), "before the deadline"),
        (answered(FAULT), "INTERNAL_FAULT"),
        (answered(code="NOT_FOUND"), "TASK_INVALID must have the status"),
        (answered(trailers=b"\xff"), "can't be decoded"),
    ],
)
def test_what_is_wrong(answer: Answer, words: str) -> None:
    problems = problems_of(answer)
    assert len(problems) == 1
    assert words in problems[0]


def test_failures_within_responses() -> None:
    assert problems_of_status(GOOD, "a") == []
    (problem,) = problems_of_status(FAULT, "a")
    assert "INTERNAL_FAULT" in problem


def test_answers_over_http() -> None:
    assert problems_of_http("x", 400, b"Bad Request") == []
    assert problems_of_http("x", 0, b"") == []
    assert "traceback" in problems_of_http("x", 200, TRACE)[0]
    assert "status 500" in problems_of_http("x", 500, b"A server error occurred.")[0]


def test_logs() -> None:
    assert problems_of_log("INFO a session was closed\nWARNING a peer broke the protocol") == []
    found = problems_of_log("INFO a\n" + TRACE.decode() + "\nINFO b\n" + TRACE.decode())
    assert len(found) == 1  # alike ones once
    assert "KeyError: 1" in found[0]
    assert problems_of_log("asyncio: Task exception was never retrieved")
    assert problems_of_log("F1127 05:46:53.7  6360 ev_epoll1_linux.cc:1121] Check failed: a == b")
    assert "21000 characters" in problems_of_log("INFO a\n" + "b" * 21_000)[0]


_SAMPLES = range(60)
#: By what it is of: MiB at each sample.
_SOUND: dict[str, Sequence[float]] = {
    "warm-up": [100 + min(number, 15) * 20 for number in _SAMPLES],
    "garbage that is collected": [100 + number * 7 % 26 for number in _SAMPLES],
    "garbage that is not collected yet": [100 + number / 60 * 25 for number in _SAMPLES],
    "requests in flight": [100 + number % 3 * 400 for number in _SAMPLES],
    "a peak at the end": [100.0] * 57 + [900.0] * 3,
    "a cache that fills": [100 + 200 * (1 - 0.93**number) for number in _SAMPLES],
    "what one large request leaves": [100 + 60 * (number > 40) for number in _SAMPLES],
    "a run of a moment": [100, 300, 900],
}
_LEAKS: dict[str, Sequence[float]] = {
    "steadily": [100 + number * 2 for number in _SAMPLES],
    "under requests in flight": [100 + number * 2 + number % 3 * 400 for number in _SAMPLES],
    "under garbage that is collected": [100 + number * 2 + number * 7 % 26 for number in _SAMPLES],
    "beside what one large request leaves": [
        100 + number * 2 + 60 * (number > 40) for number in _SAMPLES
    ],
    "ever faster": [100 + number**2 / 10 for number in _SAMPLES],
    "after a warm-up": [100 + min(number, 15) * 20 + number * 2 for number in _SAMPLES],
}


@pytest.mark.parametrize("of", _SOUND)
def test_memory_that_does_not_go_on_growing(of: str) -> None:
    assert problems_of_memory("a", [round(one * MIB) for one in _SOUND[of]]) == []


@pytest.mark.parametrize("how", _LEAKS)
def test_memory_that_leaks(how: str) -> None:
    (problem,) = problems_of_memory("a", [round(one * MIB) for one in _LEAKS[how]])
    assert "the memory of a keeps growing" in problem
