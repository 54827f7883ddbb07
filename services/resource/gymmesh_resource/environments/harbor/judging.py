"""Runs the tests of a step in a sandbox, and reads their result."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2
from gymmesh_resource import SandboxHandle
from gymmesh_resource.environments._in_sandbox import run_line
from gymmesh_resource.environments.harbor.rewards import (
    REWARD_FILES,
    NoReward,
    read_printed,
    read_rewards,
)
from gymmesh_resource.environments.harbor.shell_state import TAKE_UP
from gymmesh_resource.environments.harbor.task import Healthcheck, HookCommand, TaskTests
from gymmesh_resource.environments.harbor.trajectory import PATH as TRAJECTORY
from gymmesh_resource.errors import TookTooLong
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import mask_secrets, shortened
from gymmesh_sandbox_access.files import packed
from gymmesh_sandbox_access.leftovers import SeenProcesses, end_others

TESTS: Final = "/tests"
_LOGS: Final = "/logs/verifier"
_OUTPUT: Final = f"{_LOGS}/test-stdout.txt"
_PREPARE_S: Final = 60.0
_REWARD_BYTES: Final = 1 << 20
_OUTPUT_BYTES: Final = 16 << 20
_SHOWN: Final = 2000  # characters of the tests' output that are kept
_TOLD: Final = 1000  # bytes of it in an error's message, which is limited to 2000
_UNREADABLE: Final = (
    errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
    errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
    errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
)
# Folders that the format promises to agents and tests; any user may write there.
_FOLDERS: Final = (
    "for f in /logs /logs/agent /logs/verifier /logs/artifacts; do "
    'mkdir -p "$f" && chmod 777 "$f" || exit 1; done'
)
# An agent may have put a link in the place of any of them.
_FRESH_LOGS: Final = (
    "if [ -L /logs ]; then rm -f /logs; fi; "
    f"rm -rf {_LOGS} && mkdir -p {_LOGS} && chmod 777 {_LOGS}"
)
# Scripts without a first line that names an interpreter are bash's.
_RUN: Final = 'if command -v bash >/dev/null; then bash -c "$1"; else "$1"; fi >"$2" 2>&1'


def no_reward(error: NoReward, note: str, output: str) -> NoReward:
    """The error with what explains it: how the tests ended, and the last part of their output,
    since the reason is usually in the last lines.
    """
    text = " ".join(mask_secrets(output).split())
    end = text.encode("utf-8", "replace")[-_TOLD:].decode("utf-8", "ignore")
    if len(end) < len(text):
        end = f"…{end}"
    said = f"the tests' output ends: {end}" if text else "the tests wrote no output"
    return NoReward(f"{shortened(str(error), _TOLD // 2)}; {note}; {said}")


def fault_of_tests(task: str, error: NoReward) -> MeshError:
    """VERIFIER_FAULT for a task folder. It names no place in code, since the tests are at fault."""
    return MeshError(
        errors_pb2.ERROR_REASON_VERIFIER_FAULT,
        f"The tests of the task folder {task!r} gave no reward: {error}.",
        metadata={"verifier": "harbor", "stage": "verify", "task_folder": task},
    )


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """The result of a step's tests: rewards by name, how the tests ended, and the end of their
    output.
    """

    rewards: Mapping[str, float]
    note: str
    output: str

    def evidence(self) -> dict[str, Any]:
        """As JSON."""
        return {"rewards": dict(self.rewards), "tests": self.note, "output": self.output}


async def make_folders(sandbox: SandboxHandle, user: str) -> None:
    """Creates the folders for logs if they are missing."""
    await run_line(sandbox, _FOLDERS, _PREPARE_S, user=user, cwd="/")


async def clear_for_next_step(sandbox: SandboxHandle, user: str) -> None:
    """Removes the tests of a step, and the content of the folders for logs."""
    line = f"rm -rf {TESTS} /logs/agent /logs/artifacts; {_FRESH_LOGS}"
    await run_line(sandbox, line, _PREPARE_S, user=user, cwd="/")
    await make_folders(sandbox, user)


async def wait_until_healthy(sandbox: SandboxHandle, check: Healthcheck) -> None:
    """Runs the check until it succeeds, as Docker does. Raises RuntimeError if it fails."""
    grace_ends = time.monotonic() + check.start_period_s
    failures = 0
    while True:
        in_grace = time.monotonic() < grace_ends
        result = await sandbox.exec(check.command, timeout_s=check.timeout_s)
        if result.ok:
            return
        failures += not in_grace
        if failures >= check.retries:
            said = (result.error_text or result.text).strip()[-200:]
            raise RuntimeError(
                f"the healthcheck {check.command!r} failed {failures} times: {said or 'no output'}"
            )
        await asyncio.sleep(check.start_interval_s if in_grace else check.interval_s)


async def collect(sandbox: SandboxHandle, commands: Sequence[HookCommand]) -> None:
    """Runs commands that save state for the tests. Their exit codes are ignored, as in Harbor."""
    for one in commands:
        await sandbox.exec(one.command, timeout_s=one.timeout_s, user=one.user)


async def leave_trajectory(sandbox: SandboxHandle, content: bytes) -> None:
    """Writes the agent's trajectory to the place where its tests expect it, as the agent's user,
    since the agent may have put a link there. If the agent made this impossible, there is no
    trajectory.
    """
    place = shlex.quote(TRAJECTORY)
    await sandbox.exec(f"mkdir -p /logs/agent; rm -rf {place}", timeout_s=_PREPARE_S, cwd="/")
    try:
        await sandbox.files.write(TRAJECTORY, content)
    except MeshError as error:
        if error.reason not in _UNREADABLE:
            raise


async def judge(
    sandbox: SandboxHandle,
    tests: TaskTests,
    env: Mapping[str, str],
    before: SeenProcesses,
    *,
    user: str,
    root: str,
    own_tests: bool,
) -> StepVerdict:
    """Puts the tests there, runs them to their end, and reads their rewards.

    env: the tests' variables, filled in. before: processes that may be left when the tests have
    ended. user: of the tests. root: the sandbox's root, or its own user. own_tests: whether what
    lies at /tests stays. Raises NoReward, TookTooLong, and MeshError of the sandbox.
    """
    await _prepare(sandbox, tests, root, own_tests=own_tests)
    note = await _run(sandbox, tests, env, user)
    # What the tests left running could change the reward while it is read.
    await end_others(sandbox, before, user=root)
    written = await _written(sandbox, _OUTPUT, _OUTPUT_BYTES, root)
    output = (written or b"").decode("utf-8", "replace")
    try:
        if tests.printed is None:
            rewards = read_rewards(await _reward_files(sandbox, root))
        else:
            rewards = read_printed(output, tests.printed)
    except NoReward as error:
        raise no_reward(error, note, output) from None
    return StepVerdict(rewards, note, output[-_SHOWN:])


async def _prepare(sandbox: SandboxHandle, tests: TaskTests, root: str, *, own_tests: bool) -> None:
    """Removes what could pass for a reward or a test, and puts the tests there."""
    await run_line(sandbox, _FRESH_LOGS, _PREPARE_S, user=root, cwd="/")
    if not own_tests:
        await run_line(sandbox, f"rm -rf {TESTS}", _PREPARE_S, user=root, cwd="/")
    for files in tests.folders:
        archive = await asyncio.to_thread(packed, files.path, files.without)
        await sandbox.files.unpack(archive, TESTS, user=root)
    for file in tests.extra:
        await sandbox.files.upload(file, TESTS, user=root)
    line = f"chmod a+rx {TESTS} {shlex.quote(f'{TESTS}/{tests.script}')}"
    if tests.folders or tests.extra:
        await run_line(sandbox, line, _PREPARE_S, user=root, cwd="/")
    else:  # tests of the image's own, which a sandbox without root may not change
        await sandbox.exec(line, user=root, cwd="/")


async def _run(sandbox: SandboxHandle, tests: TaskTests, env: Mapping[str, str], user: str) -> str:
    """Runs the tests to their end and says how that was. Raises TookTooLong."""
    line = f"{TAKE_UP}\n{_RUN}" if tests.same_shell else _RUN
    result = await sandbox.exec(
        ["/bin/sh", "-c", line, "tests", f"{TESTS}/{tests.script}", _OUTPUT],
        timeout_s=tests.time_s,
        env=env,
        user=user,
    )
    if result.timed_out:
        problem = f"the task's tests took longer than their limit of {tests.time_s:g} s"
        raise TookTooLong(problem, tests.time_s)
    if result.out_of_memory:
        return "the tests needed more memory than the sandbox has"
    if result.exit_code is None:
        return f"signal {result.signal} ended the tests"
    return f"the tests ended with exit code {result.exit_code}"


async def _reward_files(sandbox: SandboxHandle, root: str) -> dict[str, bytes]:
    """The contents of the reward files. Raises NoReward for anything but a plain file."""
    found: dict[str, bytes] = {}
    for name in REWARD_FILES:
        content = await _written(sandbox, f"{_LOGS}/{name}", _REWARD_BYTES, root)
        if content is not None:
            found[name] = content
    return found


async def _written(sandbox: SandboxHandle, path: str, most: int, root: str) -> bytes | None:
    """What the tests wrote to a file; None: there is none. Raises NoReward for a link, and for
    what else is no plain file.
    """
    try:
        there = await sandbox.files.list(_LOGS, user=root)
    except MeshError as error:
        if error.reason in _UNREADABLE:
            return None
        raise
    kind = next((one.kind for one in there if one.path == path.encode()), None)
    if kind is None:
        return None
    if kind != files_pb2.FILE_KIND_FILE:
        raise NoReward(f"{path} is not a plain file")
    return await sandbox.files.read(path, max_bytes=most, user=root)
