"""Task folders of Harbor and Terminal-Bench: the agent works in a sandbox, the folder's own tests
judge.

The tests come into the sandbox once the agent has ended and everything that it left running was
killed. They run there as the format says, and what they write is the reward; without it the
verifier has failed.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, sandbox_pb2
from gymmesh_resource import (
    Environment,
    Expected,
    Rollout,
    SandboxHandle,
    SandboxSpec,
    Session,
    Task,
    TaskInvalid,
    Verdict,
)
from gymmesh_resource.environments._in_sandbox import root_of, run_line, shell_output
from gymmesh_resource.environments.harbor.folders import TaskFolders, filled_in
from gymmesh_resource.environments.harbor.rewards import (
    REWARD_FILES,
    NoReward,
    main_reward,
    read_rewards,
    read_summary,
)
from gymmesh_resource.environments.harbor.solution import FOLDER as SOLUTION_FOLDER
from gymmesh_resource.environments.harbor.solution import solution_calls
from gymmesh_resource.environments.harbor.task import HarborTask, TaskRefused
from gymmesh_resource.tools import tool
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox_access import WORKSPACE, Reach
from gymmesh_sandbox_access.files import packed
from gymmesh_sandbox_access.leftovers import SeenProcesses, end_others, running

_KEY: Final = "harbor"
_TESTS: Final = "/tests"
_LOGS: Final = "/logs/verifier"
_OUTPUT: Final = f"{_LOGS}/test-stdout.txt"
_PREPARE_S: Final = 60.0
_REWARD_BYTES: Final = 1 << 20
_OUTPUT_BYTES: Final = 16 << 20
_SHOWN: Final = 2000  # characters of the tests' output in the evidence
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
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


@dataclass(slots=True)
class HarborState:
    """What is kept of a session: the processes from before the agent, whether the image has tests
    of its own, and the monotonic clock when the agent's time is up, if ever.
    """

    before: SeenProcesses = field(default_factory=SeenProcesses)
    own_tests: bool = False
    ends: float | None = None


class HarborEnvironment(Environment[HarborState]):
    """Task folders of Harbor and Terminal-Bench, judged by their own tests. Tool: a shell."""

    version = "1"
    state = HarborState
    keep_state = False
    sandbox = SandboxSpec(lent=True)
    # The format knows no bounds.
    reward_range = (float("-inf"), float("inf"))

    def __init__(
        self,
        *,
        tasks: str,
        only: list[str] | None = None,
        images: dict[str, str] | None = None,
        network: Literal["task", "agent", "none", "open"] | list[str] | None = None,
        variables: dict[str, str] | None = None,
        reward: str = "reward",
        shell_timeout_s: _Seconds = 8.0,
    ) -> None:
        """Options.

        tasks: a folder of task folders, at any depth, or one task folder. only: patterns of the
            tasks' paths; others are no examples.
        images: the sandbox service's image for a task's path, for the image that it names, or for
            `*`, all others. Without one, the image that the task names, or one that is built.
        network: what sandboxes reach. Without it, what the task says, but tasks with a public
            network are refused; `task`: those as well; anything else, as SandboxSpec has it, takes
            the place of what tasks say.
        variables: what `${NAME}` in a task's variables stands for.
        reward: which number of a reward.json with several is the rollout's reward.
        shell_timeout_s: seconds that a command of the tool may take.
        """
        if not Path(tasks).is_dir():
            raise ValueError(f"tasks: there is no folder {tasks}.")
        self._folders = TaskFolders(Path(tasks))
        self._only = ["*"] if only is None else only
        self._images = images or {}
        self._network = network
        self._variables = variables or {}
        self._reward = reward
        self._shell_s = shell_timeout_s

    def tasks(self) -> Iterator[Mapping[str, Any]]:
        """A row for each task folder, also for those that will be refused."""
        for name in self._folders.names():
            task_id = self._folders.task_id(name)
            if not any(fnmatchcase(task_id, pattern) for pattern in self._only):
                continue
            try:
                instruction = self._folders.read(name).instruction
            except TaskRefused:
                instruction = task_id
            prompt = [{"role": "user", "content": instruction}]
            yield {"task_id": task_id, "responses_create_params": {"input": prompt}, _KEY: name}

    def check_task(self, task: Task) -> None:
        """The row must name a task folder that can be run here."""
        self._spec(task)
        read = self._read(task)
        self._filled(task, read.verifier_env, "verifier.env")
        self._filled(task, read.solution_env, "solution.env")

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        return {WORKSPACE: self._spec(task)}

    async def opening(self, session: Session[HarborState]) -> Sequence[str]:
        """Nothing is said; folders and files are put there before the agent begins."""
        task, sandbox, state = self._read(session.task), session.sandbox, session.state
        root = await root_of(sandbox)
        await run_line(sandbox, _FOLDERS, _PREPARE_S, user=root, cwd="/")
        if root and not (await sandbox.exec('test "$(id -u)" = 0')).ok:
            # Where the sandbox's own user could not make it, the solution has no other place.
            line = f"mkdir -p {SOLUTION_FOLDER} && chmod 777 {SOLUTION_FOLDER}"
            await run_line(sandbox, line, _PREPARE_S, user=root, cwd="/")
        if task.files is not None:
            await sandbox.files.upload(task.files, ".", user=root if task.agent_user else "")
        state.own_tests = (await sandbox.exec(["test", "-e", _TESTS], cwd="/")).ok
        state.before = await running(sandbox, user=root)
        if task.agent_s:
            state.ends = time.monotonic() + task.agent_s
        return ()

    @tool
    async def shell(self, session: Session[HarborState], command: str) -> str:
        """Run a line of shell in the sandbox and see what it writes.

        Args:
            command: a line for /bin/sh
        """
        left = self._shell_s
        if session.state.ends is not None:
            left = min(left, session.state.ends - time.monotonic())
        if left <= 0:
            session.finish()
            return "The time for this task is over."
        return await shell_output(session.sandbox, command, left)

    def expected(self, task: Task) -> Expected | None:
        """The task's own solution, put into the sandbox and run."""
        read = self._read(task)
        calls = solution_calls(read, self._filled(task, read.solution_env, "solution.env"))
        return Expected(kind="calls", calls=calls, reward=1.0) if calls else None

    async def verify(self, session: Session[HarborState], rollout: Rollout) -> Verdict:
        """Put the tests there, run them, and read their reward."""
        task, sandbox, state = self._read(session.task), session.sandbox, session.state
        root = await root_of(sandbox)
        await end_others(sandbox, state.before, user=root)
        with rollout.stage("prepare"):
            await self._prepare(sandbox, task, root, own_tests=state.own_tests)
        with rollout.stage("tests") as stage:
            stage.note = await self._run_tests(session, task, root)
        # What the tests left running could change the reward while it is read.
        await end_others(sandbox, state.before, user=root)
        output = (await _written(sandbox, _OUTPUT, _OUTPUT_BYTES, root) or b"").decode(
            "utf-8", "replace"
        )
        try:
            if task.rewards == "pytest_summary":
                rewards = read_summary(output)
            else:
                rewards = read_rewards(await _reward_files(sandbox, root))
            chosen = main_reward(rewards, self._reward)
        except NoReward as error:
            raise NoReward(
                f"{error}; {stage.note}; their output ends: {output[-_SHOWN:]}"
            ) from None
        evidence = {"rewards": rewards, "tests": stage.note, "output": output[-_SHOWN:]}
        return Verdict(chosen, rewards, evidence, _explained(rewards, chosen))

    async def _prepare(
        self, sandbox: SandboxHandle, task: HarborTask, root: str, *, own_tests: bool
    ) -> None:
        """Removes what could pass for a reward or a test, and puts the tests there."""
        await run_line(sandbox, _FRESH_LOGS, _PREPARE_S, user=root, cwd="/")
        if not own_tests:
            await run_line(sandbox, f"rm -rf {_TESTS}", _PREPARE_S, user=root, cwd="/")
        if task.tests.is_dir():
            await sandbox.files.upload(task.tests, _TESTS, user=root)
        for file in task.extra_tests.values():
            await sandbox.files.upload(file, _TESTS, user=root)
        script = shlex.quote(f"{_TESTS}/{task.test_script}")
        await run_line(sandbox, f"chmod a+rx {_TESTS} {script}", _PREPARE_S, user=root, cwd="/")

    async def _run_tests(self, session: Session[HarborState], task: HarborTask, root: str) -> str:
        """Runs the tests to their end and says how that was. Raises TimeoutError."""
        result = await session.sandbox.exec(
            ["/bin/sh", "-c", _RUN, "tests", f"{_TESTS}/{task.test_script}", _OUTPUT],
            timeout_s=task.verifier_s,
            env=self._filled(session.task, task.verifier_env, "verifier.env"),
            user=task.verifier_user or (root if task.agent_user else ""),
        )
        if result.timed_out:
            raise TimeoutError(f"the task's tests took longer than their {task.verifier_s:g} s")
        if result.out_of_memory:
            return "the tests needed more memory than the sandbox has"
        if result.exit_code is None:
            return f"the tests were ended by signal {result.signal}"
        return f"the tests ended with exit code {result.exit_code}"

    def _read(self, task: Task) -> HarborTask:
        name = task.require(_KEY, str)
        try:
            return self._folders.read(name)
        except TaskRefused as error:
            raise TaskInvalid(_KEY, f"{name}: {error}") from None

    def _filled(self, task: Task, env: Mapping[str, str], place: str) -> dict[str, str]:
        try:
            return filled_in(env, self._variables, place)
        except TaskRefused as error:
            raise TaskInvalid(_KEY, f"{task.payload[_KEY]}: {error}") from None

    def _spec(self, task: Task) -> SandboxSpec:
        read = self._read(task)
        name = self._folders.task_id(task.payload[_KEY])
        image = next(
            (self._images[key] for key in (name, read.image, "*") if key in self._images),
            read.image,
        )
        build = None
        if not image and read.build is not None:
            build = sandbox_pb2.ImageBuild(context=packed(read.build, read.without_top))
        return SandboxSpec(
            image=image,
            build=build,
            cpus=read.cpus,
            memory_mb=read.memory_mb,
            disk_mb=read.disk_mb,
            network=self._reach(name, read),
            env=self._filled(task, read.env, "environment.env"),
            user=read.agent_user,
            workdir=read.workdir,
            start_timeout_s=round(read.build_s) if build is not None else 0,
            lent=True,
        )

    def _reach(self, name: str, task: HarborTask) -> Reach:
        if self._network is not None and self._network != "task":
            return self._network
        if task.network == "no-network" or not task.network:
            return "agent"
        if task.network != "public":
            return list(task.network)
        if self._network == "task":
            return "open"
        raise TaskInvalid(
            _KEY,
            f"{name}: has a public network; allow it by the option network: task, or choose "
            "another network for all tasks, such as network: agent",
        )


async def _reward_files(sandbox: SandboxHandle, root: str) -> dict[str, bytes]:
    """The contents of the reward files that are there. Raises NoReward for what is no file."""
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
        raise NoReward(f"{path} is no plain file")
    return await sandbox.files.read(path, max_bytes=most, user=root)


def _explained(rewards: Mapping[str, float], chosen: float) -> str:
    if len(rewards) == 1:
        return f"the tests wrote the reward {chosen:g}"
    return "the tests wrote " + ", ".join(f"{name} {value:g}" for name, value in rewards.items())
