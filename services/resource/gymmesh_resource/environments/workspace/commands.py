"""Runs the checks of a workspace, each to a score from 0 to 1.

A failed check is caused by the policy. Effects of the machine are not: a check without processor
time raises TimeoutError, a check killed from outside is run again, and a missing reward file is a
fault of the verifier.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import process_pb2
from gymmesh_resource.environments.workspace.row import WorkspaceCheck
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import ExecResult, ProcessHandle, SandboxHandle

_PLACEHOLDER: Final = "{secret}"
_SIGKILL, _SIGXCPU = 9, 24
# What a check that waits for a processor gets by the clock: its time so often, and seconds.
_PATIENCE: Final = 4.0
_PATIENCE_S: Final = 20.0
_LOOK_S: Final = 0.25
_REWARD_BYTES: Final = 1 << 20
_OUTPUT_BYTES: Final = 256 << 10
_SHOWN: Final = 2000  # characters of output in the evidence
_NOT_PRINTED: Final = "did not print the expected output"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of a check: its score, one line of why, the end of its output, and further
    numbers of its reward file.
    """

    score: float
    note: str
    output: str
    details: Mapping[str, float] = field(default_factory=dict)


class RewardFileWrong(Exception):
    """A check ended and wrote no reward that can be read: a fault of the verifier."""


async def run_check(
    sandbox: SandboxHandle, check: WorkspaceCheck, clear: Callable[[], Awaitable[object]]
) -> CheckResult:
    """Runs a check. Raises TimeoutError, RewardFileWrong, and MeshError of the sandbox.

    clear: kills what a check left running, before the check runs a second time.
    """
    result = await _attempt(sandbox, check)
    if isinstance(result, str):
        # Once may be the machine's doing (its memory was over), twice is what the command does.
        await clear()
        result = await _attempt(sandbox, check)
        if isinstance(result, str):
            return CheckResult(0.0, result, "")
    return result


async def _attempt(sandbox: SandboxHandle, check: WorkspaceCheck) -> CheckResult | str:
    """The result; a text where the command was killed from outside, which says so."""
    if check.reward_file:
        removed = await sandbox.exec(["rm", "-rf", check.reward_file], user=check.user)
        if not removed.ok:
            note = f"{check.reward_file} already existed, and could not be removed"
            return CheckResult(0.0, note, _tail(removed.error_text))
    secret = secrets.token_hex(16)
    stdin = f"{secret}\n" if _PLACEHOLDER in check.prints else ""
    ended = await _ended(sandbox, check, stdin)
    if ended is None:
        return CheckResult(0.0, f"took longer than {check.timeout_s:g} s", "")
    output = _tail(ended.text + ended.error_text)
    if ended.out_of_memory:
        return CheckResult(0.0, "needed more memory than the sandbox has", output)
    if ended.signal == _SIGXCPU or (ended.signal == _SIGKILL and ended.duration_s >= _cpu_s(check)):
        return CheckResult(0.0, f"used more than {check.timeout_s:g} s of CPU time", output)
    if ended.signal == _SIGKILL:
        return "was killed (signal 9)"
    if not check.reward_file or ended.exit_code is None:
        return judged(check, ended, output, secret)
    if not _printed(check, ended, secret):
        return CheckResult(0.0, _NOT_PRINTED, output)
    return await _reward(sandbox, check, output)


def judged(check: WorkspaceCheck, ended: ExecResult, output: str, secret: str) -> CheckResult:
    """The result of a command that ended, by its exit code and what it printed. Pure."""
    if ended.exit_code is None:
        return CheckResult(0.0, f"was ended by signal {ended.signal}", output)
    if ended.exit_code not in check.exit_codes:
        return CheckResult(0.0, f"ended with exit code {ended.exit_code}", output)
    if not _printed(check, ended, secret):
        return CheckResult(0.0, _NOT_PRINTED, output)
    return CheckResult(1.0, "passed", output)


def _printed(check: WorkspaceCheck, ended: ExecResult, secret: str) -> bool:
    """Whether a command printed what it has to print, if anything."""
    return check.prints.replace(_PLACEHOLDER, secret) in ended.text + ended.error_text


async def _ended(sandbox: SandboxHandle, check: WorkspaceCheck, stdin: str) -> ExecResult | None:
    """How a command ended; None where it had its time and is killed. Raises TimeoutError.

    stdin: on standard input and not in a variable, so that what the command reads of it is no
    longer there for programs that it starts.
    """
    most_s = check.timeout_s * _PATIENCE + _PATIENCE_S
    spec = process_pb2.ProcessSpec(shell=check.run, cpu_s=_cpu_s(check))
    process = await sandbox.start(
        spec,
        timeout_s=most_s,
        user=check.user,
        output_bytes=_OUTPUT_BYTES,
    )
    await process.write(stdin)
    await process.close_stdin()
    began = time.monotonic()
    wait_s = check.timeout_s
    while True:
        try:
            ended = await process.wait(timeout_s=wait_s)
        except TimeoutError:
            passed = time.monotonic() - began
            had = passed - await _waited(process)
            if had >= check.timeout_s:
                await process.kill()
                return None
            wait_s = max(min(check.timeout_s - had, most_s - passed), _LOOK_S)
        else:
            if ended.timed_out:
                raise TimeoutError(_starved(check))
            return ended


async def _waited(process: ProcessHandle) -> float:
    """The seconds that a command waited for a processor; infinite where nobody can say."""
    threads = (await process.status()).threads
    return max((one.waited_us for one in threads), default=math.inf) / 1e6


def _starved(check: WorkspaceCheck) -> str:
    return (
        f"the check {check.name or check.run[:40]!r} got no CPU time within {check.timeout_s:g} "
        "s, because the machine is too busy"
    )


def _cpu_s(check: WorkspaceCheck) -> int:
    return math.ceil(check.timeout_s) + 1


async def _reward(sandbox: SandboxHandle, check: WorkspaceCheck, output: str) -> CheckResult:
    """What a check wrote into its reward file. Raises RewardFileWrong."""
    path = check.reward_file
    try:
        written = await sandbox.files.read(path, max_bytes=_REWARD_BYTES, user=check.user)
    except MeshError as error:
        if error.reason not in (
            errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
            errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
            errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
            errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
        ):
            raise
        raise RewardFileWrong(
            f"{_named(check)} wrote no {path}; the output of the check ends with: {output}"
        ) from None
    return read_reward(check, written, output)


def read_reward(check: WorkspaceCheck, written: bytes, output: str) -> CheckResult:
    """The result in a reward file: a number, or an object with `reward` and further numbers.

    Pure. Raises RewardFileWrong.
    """
    try:
        found = loads(written)
    except CodecError as error:
        raise RewardFileWrong(
            f"{_named(check)} wrote no number to {check.reward_file}: {error}"
        ) from None
    numbers = found if isinstance(found, dict) else {"reward": found}
    if "reward" not in numbers and len(numbers) == 1:
        numbers = {"reward": next(iter(numbers.values()))}
    for name, value in numbers.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise RewardFileWrong(f"{_named(check)} wrote {name} = {value!r}, not a number")
    if not 0 <= numbers.get("reward", -1) <= 1:
        raise RewardFileWrong(f"{_named(check)} wrote no reward from 0 to 1 to {check.reward_file}")
    details = {name: float(value) for name, value in numbers.items() if name != "reward"}
    return CheckResult(float(numbers["reward"]), "wrote its reward", output, details)


def _named(check: WorkspaceCheck) -> str:
    return f"the check {check.name or check.run[:40]!r}"


def _tail(text: str) -> str:
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
