"""How each end of a program counts: completed and judged, or failed, at which boundary. Pure.

    end                                               rollout
    the model service failed, whatever the exit code  fails at MODEL (the gateway raises it)
    a limit of the policy (steps, tokens, context)    completed: that limit (the gateway raises it)
    the program does not exist, or cannot be run      fails at PROGRAM: PROGRAM_NOT_FOUND
    the machine ran out of memory                     fails at PROGRAM: PROGRAM_KILLED
    a signal before any answer of the model           fails at PROGRAM: PROGRAM_KILLED
    a signal while it awaited the model               fails at PROGRAM: PROGRAM_KILLED
    it ended before any answer of the model           fails at PROGRAM: PROGRAM_FAILED
    exit code 0                                       completed: PROGRAM_EXITED
    a different exit code, a crash (SIGSEGV …)        completed: PROGRAM_EXITED
    a signal while it carried out an answer           completed: PROGRAM_EXITED
    over the sandbox's memory                         completed: PROGRAM_EXITED
    its time was up                                   completed: PROGRAM_TIMEOUT
    the sandbox is lost                               fails at SANDBOX (the call raises it)

The sender of a signal is unknown. The policy's own command may kill its program; if this counted as
a failure, the policy could avoid a bad verdict. An operator may also kill it; then there must be no
verdict. While the program carries out an answer, the policy's commands run: a kill then counts as
the program's own end. While the program waits for the model, normally no command of the policy
runs: a kill then fails the rollout, which is retried. A command left in the background can still
kill the program at that time; this earns the policy no reward, and the failures are counted.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import process_pb2
from gymmesh_agent.loop import Completion
from gymmesh_runtime.errors import MeshError

_NOT_RUN: Final = (126, 127)
# What a program's own fault sends it. Any other signal was sent by somebody.
_CRASHES: Final = frozenset(
    (
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGSEGV,
        signal.SIGPIPE,
        signal.SIGXCPU,
        signal.SIGXFSZ,
        signal.SIGSYS,
    )
)
_SHOWN: Final = 400  # characters of output in an error


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended.

    cause: a value of the contract's ExitCause. exit_code: the code if it exited; otherwise None.
    signal: the signal that ended it; 0: none. output_tail: the end of its output. left: the names
    of its leftover processes, which were killed. answers: the number of answered model calls.
    awaited: whether a model call was in progress at the end.
    """

    cause: process_pb2.ExitCause.ValueType
    exit_code: int | None = None
    signal: int = 0
    output_tail: bytes = b""
    left: tuple[str, ...] = ()
    answers: int = 0
    awaited: bool = False

    @property
    def is_killed(self) -> bool:
        """Whether a signal of an unknown sender ended it, and not a crash."""
        return self.cause == process_pb2.EXIT_CAUSE_SIGNALED and self.signal not in _CRASHES

    @property
    def is_not_its_own(self) -> bool:
        """Whether something outside the program ended it; see the table above."""
        if self.cause == process_pb2.EXIT_CAUSE_MACHINE_OUT_OF_MEMORY:
            return True
        return self.is_killed and (self.awaited or not self.answers)

    @property
    def is_completed(self) -> bool:
        """Whether the program's work is judged."""
        return bool(self.answers) and not self.is_not_its_own

    @property
    def detail(self) -> str:
        """One line on how it ended, for people."""
        how = _HOW.get(self.cause)
        if how is None:
            code = self.exit_code
            how = f"exit code {code}" if code is not None else f"signal {_signal(self.signal)}"
        if not self.left:
            return how
        count = len(self.left)
        names = ", ".join(sorted(set(self.left))[:4])
        return f"{how}; {count} leftover process{'es' if count > 1 else ''} killed: {names}"

    def event(self, program: str) -> rollout_pb2.ProgramEnded:
        """The contract's event; `program`: its name and version."""
        return rollout_pb2.ProgramEnded(
            exit_code=self.exit_code,
            signal=self.signal,
            detail=f"{program}: {self.detail}",
            output_tail=self.output_tail,
        )


_HOW: Final = {
    process_pb2.EXIT_CAUSE_TIMED_OUT: "its timeout_s expired",
    process_pb2.EXIT_CAUSE_OUT_OF_MEMORY: "killed at the sandbox's memory limit",
    process_pb2.EXIT_CAUSE_OUTPUT_LIMIT: "killed at the program's output limit",
    process_pb2.EXIT_CAUSE_MACHINE_OUT_OF_MEMORY: "killed because the machine ran out of memory",
}


def completion_of(end: ProgramEnd, program: str) -> Completion:
    """How the rollout completes. Raises the error with which it fails."""
    if end.is_not_its_own:
        raise MeshError(
            errors_pb2.ERROR_REASON_PROGRAM_KILLED,
            f"the program {program!r} was killed ({end.detail})",
            metadata={"program": program, "signal": str(end.signal)},
        )
    if not end.is_completed:
        raise _failed(end, program)
    if end.cause == process_pb2.EXIT_CAUSE_TIMED_OUT:
        return Completion(rollout_pb2.STOP_REASON_PROGRAM_TIMEOUT)
    return Completion(rollout_pb2.STOP_REASON_PROGRAM_EXITED)


def _failed(end: ProgramEnd, program: str) -> MeshError:
    """The error of a program that ended before the model's first answer."""
    said = " ".join(end.output_tail.decode("utf-8", "replace").split())[-_SHOWN:]
    said = f"; the program wrote: {said}" if said else ""
    if end.exit_code in _NOT_RUN:
        return MeshError(
            errors_pb2.ERROR_REASON_PROGRAM_NOT_FOUND,
            f"the program {program!r} cannot be run in its sandbox (exit code {end.exit_code}); "
            "install the program into the image, or into a folder of the sandbox that the option "
            f"'path' lists{said}",
            metadata={"program": program},
        )
    return MeshError(
        errors_pb2.ERROR_REASON_PROGRAM_FAILED,
        f"the program {program!r} ended before the model's first answer ({end.detail}){said}",
        metadata={"program": program}
        | ({} if end.exit_code is None else {"exit_code": str(end.exit_code)}),
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
