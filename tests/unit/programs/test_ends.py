"""The table of ends: what each end of a program is for its rollout."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import process_pb2
from gymmesh_agent.failures import failure_of, step_failed
from gymmesh_agent.programs.ends import ProgramEnd, completion_of
from gymmesh_runtime.errors import MeshError

EXITED = process_pb2.EXIT_CAUSE_EXITED
SIGNALED = process_pb2.EXIT_CAUSE_SIGNALED
TIMED_OUT = process_pb2.EXIT_CAUSE_TIMED_OUT
OUT_OF_MEMORY = process_pb2.EXIT_CAUSE_OUT_OF_MEMORY
MACHINE = process_pb2.EXIT_CAUSE_MACHINE_OUT_OF_MEMORY


def end(cause: process_pb2.ExitCause.ValueType = EXITED, **fields: Any) -> ProgramEnd:
    return ProgramEnd(**{"cause": cause, "exit_code": 0, "answers": 1, **fields})


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (end(), "PROGRAM_EXITED"),
        (end(exit_code=1), "PROGRAM_EXITED"),
        (end(exit_code=127), "PROGRAM_EXITED"),
        (end(SIGNALED, exit_code=None, signal=signal.SIGSEGV), "PROGRAM_EXITED"),
        (end(SIGNALED, exit_code=None, signal=signal.SIGABRT), "PROGRAM_EXITED"),
        (end(OUT_OF_MEMORY, exit_code=None, signal=9), "PROGRAM_EXITED"),
        # While it carried out an answer, whose commands may have done it.
        (end(SIGNALED, exit_code=None, signal=9), "PROGRAM_EXITED"),
        (end(SIGNALED, exit_code=None, signal=15), "PROGRAM_EXITED"),
        (end(TIMED_OUT, exit_code=None, signal=9), "PROGRAM_TIMEOUT"),
        (end(left=("sleep", "sleep", "node")), "PROGRAM_EXITED"),
    ],
)
def test_what_the_policy_did_completes_and_is_judged(ended: ProgramEnd, reason: str) -> None:
    found = completion_of(ended, "codex").reason
    assert rollout_pb2.StopReason.Name(found) == f"STOP_REASON_{reason}"


@pytest.mark.parametrize(
    ("ended", "reason", "retry_safe"),
    [
        (end(MACHINE, exit_code=None, signal=9), "PROGRAM_KILLED", True),
        (end(MACHINE, exit_code=None, signal=9, answers=0), "PROGRAM_KILLED", True),
        (end(SIGNALED, exit_code=None, signal=9, answers=0), "PROGRAM_KILLED", True),
        (end(SIGNALED, exit_code=None, signal=9, awaited=True), "PROGRAM_KILLED", True),
        (end(SIGNALED, exit_code=None, signal=15, awaited=True), "PROGRAM_KILLED", True),
        (end(SIGNALED, exit_code=None, signal=2, awaited=True), "PROGRAM_KILLED", True),
        (end(exit_code=127, answers=0), "PROGRAM_NOT_FOUND", False),
        (end(exit_code=126, answers=0), "PROGRAM_NOT_FOUND", False),
        (end(exit_code=1, answers=0), "PROGRAM_FAILED", True),
        (end(answers=0), "PROGRAM_FAILED", True),
        (end(TIMED_OUT, exit_code=None, signal=9, answers=0), "PROGRAM_FAILED", True),
        (end(SIGNALED, exit_code=None, signal=signal.SIGSEGV, answers=0), "PROGRAM_FAILED", True),
    ],
)
def test_what_is_not_the_policys_doing_fails_at_program(
    ended: ProgramEnd, reason: str, retry_safe: bool
) -> None:
    with pytest.raises(MeshError) as raised:
        completion_of(ended, "codex")
    assert raised.value.reason_name == reason
    failure = failure_of(step_failed(raised.value, "coder"), environment_retry_safe=True)
    assert failure.boundary == rollout_pb2.BOUNDARY_PROGRAM
    assert failure.retry_safe is retry_safe


def test_the_error_has_an_exit_code_only_if_there_is_one() -> None:
    for ended, metadata in (
        (end(exit_code=2, answers=0), {"program": "x", "exit_code": "2"}),
        (end(TIMED_OUT, exit_code=None, signal=9, answers=0), {"program": "x"}),
    ):
        with pytest.raises(MeshError) as raised:
            completion_of(ended, "x")
        assert raised.value.metadata == metadata


def test_the_error_says_what_the_program_wrote_last() -> None:
    with pytest.raises(MeshError, match="the program wrote: no such option --fast"):
        completion_of(end(exit_code=2, answers=0, output_tail=b"\nno such option\n --fast"), "x")


def test_the_event_says_how_it_ended_and_what_it_left() -> None:
    ended = end(exit_code=3, output_tail=b"\xffbye", left=("sleep", "node", "sleep"))
    event = ended.event("codex 1.2")
    assert event.exit_code == 3
    assert event.output_tail == b"\xffbye"
    assert event.detail == "codex 1.2: exit code 3; 3 leftover processes killed: node, sleep"
    killed = end(SIGNALED, exit_code=None, signal=15).event("x")
    assert not killed.HasField("exit_code")
    assert (killed.signal, killed.detail) == (15, "x: signal SIGTERM")
    assert end(TIMED_OUT, exit_code=None, signal=9).detail == "its timeout_s expired"
