"""Task folders of Harbor and Terminal-Bench: the agent works in a sandbox, and the folder's own
tests judge the work.

When the agent has ended, every process that it left running is killed. Then the tests are copied
into the sandbox, or into a separate sandbox with the artifacts that the task names. The tests run
as the format says and write the reward. Without a reward, the verifier fails. A step of a task is a
turn: the environment sends the next instruction when the tests of the previous step have run.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import (
    Environment,
    Expected,
    Rollout,
    SandboxSpec,
    Session,
    Task,
    TaskInvalid,
    ToolError,
    Transcript,
    Turn,
    Verdict,
)
from gymmesh_resource.environments._in_sandbox import (
    failed_how,
    root_of,
    run_line,
    shell_output,
)
from gymmesh_resource.environments.harbor.artifacts import TakenArtifact, put, take
from gymmesh_resource.environments.harbor.folders import TaskFolders, filled_in
from gymmesh_resource.environments.harbor.judging import (
    TESTS,
    StepVerdict,
    clear_for_next_step,
    collect,
    fault_of_tests,
    judge,
    leave_trajectory,
    make_folders,
    no_reward,
    wait_until_healthy,
)
from gymmesh_resource.environments.harbor.mcp_servers import TaskServers
from gymmesh_resource.environments.harbor.rewards import NoReward, main_reward
from gymmesh_resource.environments.harbor.shell_state import carried
from gymmesh_resource.environments.harbor.skills import told_skills
from gymmesh_resource.environments.harbor.solution import FOLDER as SOLUTION_FOLDER
from gymmesh_resource.environments.harbor.solution import solution_calls
from gymmesh_resource.environments.harbor.specs import NetworkOption, TaskSpecs
from gymmesh_resource.environments.harbor.steps import below, task_rewards
from gymmesh_resource.environments.harbor.task import HarborTask, TaskBox, TaskRefused, TaskStep
from gymmesh_resource.environments.harbor.trajectory import trajectory
from gymmesh_resource.errors import TookTooLong
from gymmesh_resource.tools import tool
from gymmesh_sandbox_access import WORKSPACE
from gymmesh_sandbox_access.leftovers import SeenProcesses, end_others, running

_KEY: Final = "harbor"
_DONE: Final = "Done."
_PREPARE_S: Final = 60.0
_SETUP_S: Final = 600.0
_SHORTEST_S: Final = 0.001  # a command's time, where that of its step just ended
_MIB: Final = 1 << 20
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


@dataclass(slots=True)
class HarborState:
    """The state of a session.

    before: the processes from before the agent's step. own_tests: whether the image has tests of
        its own. one_shell: whether the tool's commands share their folder and variables.
    ends: the monotonic time at which the agent's time is up, if limited.
    step: the number of the current step, from 0. verdicts: the verdicts of steps, by number.
    ended: why no further step follows, as one clause; empty: a step may follow.
    taken: the artifacts of the current step, once collected.
    judged_apart: how many sandboxes were created only for tests.
    fault: why an ended step has no reward.
    said: how many items of the conversation belong to ended steps.
    prepared: whether the sandbox is ready for the agent. servers: the task's MCP servers, if any.
    """

    before: SeenProcesses = field(default_factory=SeenProcesses)
    own_tests: bool = False
    one_shell: bool = False
    ends: float | None = None
    step: int = 0
    verdicts: dict[int, StepVerdict] = field(default_factory=dict)
    ended: str = ""
    taken: list[TakenArtifact] | None = None
    judged_apart: int = 0
    fault: NoReward | TookTooLong | None = None
    said: int = 0
    prepared: bool = False
    servers: TaskServers | None = None


class HarborEnvironment(Environment[HarborState]):
    """Task folders of Harbor and Terminal-Bench, judged by their own tests. Tool: a shell."""

    version = "2"
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
        network: NetworkOption = None,
        variables: dict[str, str] | None = None,
        reward: str = "reward",
        shell_timeout_s: _Seconds = 8.0,
        keep_running: list[str] | None = None,
        artifacts_mb: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 256,
        storage_limit: bool = True,
    ) -> None:
        """Options.

        tasks: a folder of task folders, at any depth, or one task folder.
        only: patterns of the tasks' paths. Other tasks are not example tasks.
        images: images of the sandbox service, by a task's path, the path of tests whose folder has
            a Dockerfile, the image that a task names, or `*` for all others. Without an entry, the
            sandbox uses the image that the task names, or builds one.
        network: the network of sandboxes. Default: as the task says, but tasks with a public
            network are rejected. `task`: also a public network. Any other value, as in SandboxSpec,
            replaces the task's.
        variables: the values for `${NAME}` in a task's variables.
        reward: which number of a reward.json with several numbers is the rollout's reward.
        shell_timeout_s: seconds that a command of the tool may take.
        keep_running: patterns of the paths of tasks whose tests need processes that the agent left
            running, such as a server. These processes can change what the tests do.
        artifacts_mb: largest size of an artifact's compressed archive, in MiB. A larger artifact is
            treated as missing.
        storage_limit: whether a task's `storage_mb` limits the bytes that its sandbox writes.
            Backends without this limit reject such a task.
        """
        if not Path(tasks).is_dir():
            raise ValueError(f"tasks: there is no folder {tasks}.")
        self._folders = TaskFolders(Path(tasks))
        self._only = ["*"] if only is None else only
        self._variables = variables or {}
        self._specs = TaskSpecs(images or {}, network, self._variables, storage_limit=storage_limit)
        self._reward = reward
        self._shell_s = shell_timeout_s
        self._keep_running = keep_running or []
        self._most_bytes = artifacts_mb * _MIB

    def tasks(self) -> Iterator[Mapping[str, Any]]:
        """A row for each task folder, also for folders that will be rejected."""
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

    @cached_property
    def multi_turn(self) -> bool:
        """Whether one of the folders has steps, each of which is a turn."""
        return any(self._folders.has_steps(name) for name in self._folders.names())

    def check_task(self, task: Task) -> None:
        """The row must name a task folder that this environment can run."""
        read = self._read(task)
        self._spec(task, None)
        for step in read.steps:
            if step.tests.box is not None:
                self._spec(task, step.tests.box)
            self._filled(task, step.tests.env, "verifier.env")
        self._filled(task, read.solution_env, "solution.env")

    def sandbox_specs(self, task: Task) -> Mapping[str, SandboxSpec]:
        return {WORKSPACE: self._spec(task, None)}

    async def session_tools(self, session: Session[HarborState]) -> Sequence[Mapping[str, Any]]:
        """Those of the task's MCP servers."""
        task = self._read(session.task)
        if not task.servers:
            return ()
        await self._prepare(session, task)
        session.state.servers = servers = TaskServers(task.servers)
        await servers.open(session.sandbox)
        return servers.functions

    async def opening(self, session: Session[HarborState]) -> Sequence[str]:
        """A message that lists the skills of the image, if the task has a `skills_dir`."""
        task = self._read(session.task)
        if not session.state.prepared:  # servers need it earlier
            await self._prepare(session, task)
        told = await told_skills(session.sandbox, task.skills) if task.skills else ""
        return (told,) if told else ()

    async def _prepare(self, session: Session[HarborState], task: HarborTask) -> None:
        """Puts folders and files there before the agent begins."""
        sandbox = session.sandbox
        root = await root_of(sandbox)
        await make_folders(sandbox, root)
        if root and not (await sandbox.exec('test "$(id -u)" = 0')).ok:
            # Where the sandbox's own user could not make it, the solution has no other place.
            line = f"mkdir -p {SOLUTION_FOLDER} && chmod 777 {SOLUTION_FOLDER}"
            await run_line(sandbox, line, _PREPARE_S, user=root, cwd="/")
        if task.box.files is not None:
            owner = root if task.agent_user else ""
            await sandbox.files.upload(task.box.files, ".", user=owner)
        session.state.own_tests = (await sandbox.exec(["test", "-e", TESTS], cwd="/")).ok
        if task.healthcheck is not None:
            await wait_until_healthy(sandbox, task.healthcheck)
        await self._begin_step(session, task)
        session.state.prepared = True

    @tool
    async def shell(self, session: Session[HarborState], command: str) -> str:
        """Run a line of shell in the sandbox and see what it writes.

        Args:
            command: a line for /bin/sh
        """
        state = session.state
        if told := self._time_is_over(session):
            return told
        left = self._shell_s
        if state.ends is not None:
            left = min(left, max(state.ends - time.monotonic(), _SHORTEST_S))
        line = carried(command) if state.one_shell else command
        return await shell_output(session.sandbox, line, left)

    async def call_other(
        self, session: Session[HarborState], name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """Calls a tool of the task's MCP servers."""
        servers = session.state.servers
        if servers is None:
            raise ToolError(f"There is no tool {name!r}.")
        return self._time_is_over(session) or await servers.call(name, arguments)

    async def close_session(self, session: Session[HarborState]) -> None:
        if session.state.servers is not None:
            await session.state.servers.close()

    def _time_is_over(self, session: Session[HarborState]) -> str:
        """What the model is told once the time of the step is up; empty: it is not. The last step
        ends the session.
        """
        state = session.state
        if state.ends is None or state.ends > time.monotonic():
            return ""
        if state.step + 1 < len(self._read(session.task).steps):
            return "The time for this step is over. Answer without a tool call to continue."
        session.finish()
        return "The time for this task is over."

    def expected(self, task: Task) -> Expected | None:
        """The task's own solutions, as calls that run them in the sandbox. None if a step has no
        solution.
        """
        read = self._read(task)
        env = self._filled(task, read.solution_env, "solution.env")
        first, *further = [solution_calls(step, env) for step in read.steps]
        if not first or not all(further):
            return None
        answer = _DONE if further else ""  # which ends each step
        return Expected(answer, "calls", calls=first, reward=1.0, turns=further)

    async def next_turn(self, session: Session[HarborState], new: Transcript) -> Turn:
        """Run the tests of this step, then return the next step's instruction. The last step ends
        the episode.
        """
        task, state = self._read(session.task), session.state
        if state.step + 1 == len(task.steps):
            return Turn(done=True)
        try:
            verdict = await self._judge_step(session, task, new.items)
        except (NoReward, TookTooLong) as error:
            # A fault of the verifier, and not of this turn.
            state.fault = error
            return Turn(done=True)
        reward = verdict.rewards.get(self._reward)
        if state.ended:
            return Turn(reward=reward, done=True)
        state.said += len(new.items) + 1  # and the next instruction
        await self._begin_next_step(session, task)
        return Turn(task.steps[state.step].instruction, reward)

    async def verify(self, session: Session[HarborState], rollout: Rollout) -> Verdict:
        """Run the tests of the current step, and those of steps that the agent did not reach."""
        try:
            return await self._verdict(session, rollout)
        except NoReward as error:
            raise fault_of_tests(session.task.payload[_KEY], error) from None

    async def _verdict(self, session: Session[HarborState], rollout: Rollout) -> Verdict:
        task, state = self._read(session.task), session.state
        if state.fault is not None:
            raise state.fault
        items = rollout.items[state.said :]
        while not state.ended:
            with rollout.stage(task.steps[state.step].name or "tests") as stage:
                stage.note = (await self._judge_step(session, task, items)).note
            items = ()
            if state.ended or state.step + 1 == len(task.steps):
                break
            await self._begin_next_step(session, task)
        verdicts = [state.verdicts[number] for number in sorted(state.verdicts)]
        rewards = task_rewards([one.rewards for one in verdicts], task.strategy)
        try:
            chosen = main_reward(rewards, self._reward)
        except NoReward as error:
            raise no_reward(error, verdicts[-1].note, verdicts[-1].output) from None
        return Verdict(chosen, rewards, _evidence(task, verdicts), _explained(state, rewards))

    async def _begin_step(self, session: Session[HarborState], task: HarborTask) -> None:
        """Makes the sandbox ready for the step under way. Raises RuntimeError where the task's own
        set-up fails.
        """
        sandbox, state = session.sandbox, session.state
        step = task.steps[state.step]
        root = await root_of(sandbox)
        if step.files is not None:
            await sandbox.files.upload(step.files, ".", user=root if task.agent_user else "")
        if step.has_setup:
            result = await sandbox.exec(_with_bash("./setup.sh"), timeout_s=_SETUP_S)
            if not result.ok:
                problem = f"setup.sh of the step {step.name!r} failed, {failed_how(result)}"
                raise RuntimeError(problem)
        if step.healthcheck is not None:
            await wait_until_healthy(sandbox, step.healthcheck)
        state.before = await running(sandbox, user=root)
        state.taken = None
        state.one_shell = step.tests.same_shell
        state.ends = time.monotonic() + step.agent_s if step.agent_s else None

    async def _begin_next_step(self, session: Session[HarborState], task: HarborTask) -> None:
        await clear_for_next_step(session.sandbox, await root_of(session.sandbox))
        session.state.step += 1
        await self._begin_step(session, task)
        if session.state.servers is not None:
            await session.state.servers.reopen(session.sandbox)

    async def _judge_step(
        self, session: Session[HarborState], task: HarborTask, items: Sequence[responses_pb2.Item]
    ) -> StepVerdict:
        """Judges the step under way, in which `items` were said, and notes whether it is the last
        one. Raises NoReward, TookTooLong, and MeshError of the sandbox.
        """
        state = session.state
        step = task.steps[state.step]
        if items and state.taken is None:
            await leave_trajectory(session.sandbox, trajectory(step.instruction, items, session.id))
        env = self._filled(session.task, step.tests.env, "verifier.env")
        if step.tests.box is None:
            verdict = await self._judge_here(session, task, step, env)
        else:
            verdict = await self._judge_apart(session, task, step, step.tests.box, env)
        state.verdicts[state.step] = verdict
        state.ended = below(verdict.rewards, step.least)
        return verdict

    async def _judge_here(
        self,
        session: Session[HarborState],
        task: HarborTask,
        step: TaskStep,
        env: Mapping[str, str],
    ) -> StepVerdict:
        """Judges in the agent's sandbox."""
        sandbox, state = session.sandbox, session.state
        root = await root_of(sandbox)
        before = await self._end_agents(session, root)
        await collect(sandbox, step.collect)
        return await judge(
            sandbox,
            step.tests,
            env,
            before,
            user=step.tests.user or (root if task.agent_user else ""),
            root=root,
            # Those of an image may go along with a task's, but not with a step's.
            own_tests=state.own_tests and not step.name,
        )

    async def _judge_apart(
        self,
        session: Session[HarborState],
        task: HarborTask,
        step: TaskStep,
        box: TaskBox,
        env: Mapping[str, str],
    ) -> StepVerdict:
        """Judges in a sandbox for these tests alone. The agent's ends before where no other step
        needs it, so that no rollout holds two places.
        """
        state = session.state
        if state.taken is None:
            root = await root_of(session.sandbox)
            await self._end_agents(session, root)
            await collect(session.sandbox, step.collect)
            taken = await take(session.sandbox, step.artifacts, self._most_bytes, user=root)
            state.taken = taken
            if state.step + 1 == len(task.steps):
                await session.sandbox.end()
        state.judged_apart += 1
        role = f"tests-{state.judged_apart}"
        sandbox = session.sandboxes.add(role, self._spec(session.task, box))
        try:
            root = await root_of(sandbox)
            await make_folders(sandbox, root)
            if box.files is not None:
                await sandbox.files.upload(box.files, ".", user=root)
            await put(sandbox, state.taken, user=root)
            before = await running(sandbox, user=root)
            tests, user = step.tests, step.tests.user
            return await judge(sandbox, tests, env, before, user=user, root=root, own_tests=True)
        finally:
            await sandbox.end()

    async def _end_agents(self, session: Session[HarborState], root: str) -> SeenProcesses:
        """Ends what the agent left running, and says what runs on."""
        state = session.state
        if state.servers is not None:
            await state.servers.close()
        task_id = self._folders.task_id(session.task.payload[_KEY])
        if any(fnmatchcase(task_id, pattern) for pattern in self._keep_running):
            return await running(session.sandbox, user=root)
        await end_others(session.sandbox, state.before, user=root)
        return state.before

    def _read(self, task: Task) -> HarborTask:
        name = task.require(_KEY, str)
        try:
            return self._folders.read(name)
        except TaskRefused as error:
            raise TaskInvalid(_KEY, f"{name}: {error}") from None

    def _spec(self, task: Task, box: TaskBox | None) -> SandboxSpec:
        """The agent's sandbox, or another one of the task."""
        name = task.payload[_KEY]
        task_id = self._folders.task_id(name)
        try:
            if box is None:
                return self._specs.of_agent(task_id, self._read(task))
            return self._specs.of_tests(task_id, box)
        except TaskRefused as error:
            raise TaskInvalid(_KEY, f"{name}: {error}") from None

    def _filled(self, task: Task, env: Mapping[str, str], place: str) -> dict[str, str]:
        try:
            return filled_in(env, self._variables, place)
        except TaskRefused as error:
            raise TaskInvalid(_KEY, f"{task.payload[_KEY]}: {error}") from None


def _with_bash(script: str) -> str:
    quoted = shlex.quote(script)
    return f"if command -v bash >/dev/null; then bash {quoted}; else sh {quoted}; fi"


def _evidence(task: HarborTask, verdicts: Sequence[StepVerdict]) -> Mapping[str, Any]:
    if not task.steps[0].name:
        return verdicts[0].evidence()
    steps = zip(task.steps, verdicts, strict=False)  # a task may end before its last step
    return {"steps": {step.name: verdict.evidence() for step, verdict in steps}}


def _explained(state: HarborState, rewards: Mapping[str, float]) -> str:
    said = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
    if len(state.verdicts) > 1 or state.ended:
        text = f"the tests of {len(state.verdicts)} steps returned {said}"
        return f"{text}; no further step ran: {state.ended}" if state.ended else text
    return f"the tests wrote {'the ' if len(rewards) == 1 else ''}{said}"
