"""Mathematical questions with one right answer; tool: a calculator.

Task rows have `expected_answer` (LaTeX, plain text or a number), as in NeMo Gym's math_with_judge.
A judge also sees the row's `question`, if any.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environments.llm_judge.control import AnswerUnjudged, judged
from gymmesh_resource.environments.math import library, worker
from gymmesh_resource.environments.math.answers.extraction import find_answer, last_box
from gymmesh_resource.environments.math.equivalence import SYSTEM, comparison, read_label
from gymmesh_resource.environments.math.score import ExpectedAnswerError, MathScore, unjudged
from gymmesh_resource.environments.nemo_rows import refuse_others
from gymmesh_resource.expected import ANSWER, Expected
from gymmesh_resource.tools import tool
from gymmesh_resource.workers import AnswerTooMuch, PoolError
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra
from gymmesh_runtime.timers import cancel_and_wait

_LOGGER = logging.getLogger("gymmesh.resource.math")
# Characters of an answer without a box that the judge is shown, and of its own kept as evidence.
_UNBOXED, _SAID = 2_000, 1_000
# Characters of a response that could not be compared in which its answer is sought: its end.
_SEARCHED = 100_000
# NeMo Gym's servers that ask this library, and those of them whose judge is asked as here.
_SERVERS_WITH_THIS_JUDGE = ("math_with_judge", "polymath", "ns_tools")
_SERVERS = (*_SERVERS_WITH_THIS_JUDGE, "math_with_autograder", "physics_judge", "ugphysics_judge")


class MathEnvironment(Environment[None]):
    """Mathematical questions with one right answer; tool: a calculator.

    The reward is 1.0 if the answer is equivalent to `expected_answer`, otherwise 0.0. With
    `compat: nemo`, math-verify alone decides. With the option `judge`, a model `judge` decides on
    answers that the rules reject.
    """

    version = "5"
    references = ("nemo",)
    verify_needs_session = False
    in_order = False
    examples = "tasks.jsonl"
    models = ("judge",)
    extra = Extra("math", ("math_verify", "mpmath", "simpleeval"))
    # The library, SymPy and a large computation; beyond this it is runaway.
    process_memory = 2 * 1024**3
    process_warm_up = worker.warm_up

    def __init__(
        self,
        *,
        tool_pattern: str | None = None,
        answer_from: Literal["all", "last"] = "all",
        evaluated: bool | None = None,
        judge_workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2,
        judge_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0,
        judge: bool = False,
        judge_unboxed: bool = False,
        judge_failsafe: Literal["fail", "library"] = "fail",
        judge_params: dict[str, Any] | None = None,
    ) -> None:
        """Options.

        tool_pattern: a regular expression for the calculator's expressions; helps small models
            whose answers are constrained by the schema.
        answer_from: where to look for the answer: in everything that the model wrote, or in its
            last message.
        evaluated: whether an answer that is not computed (37*43), or that occurs in the prompt,
            gets 0.0. Default: true if the expected answer is a whole number or a decimal.
        judge_workers: number of processes that compare answers.
        judge_timeout_s: seconds of processor time for one comparison. An answer that needs more
            gets 0.0.
        judge: whether to ask a model `judge` about boxed answers that the rules reject, with the
            two answers in both orders.
        judge_unboxed: whether to ask the judge about answers without a box, too.
        judge_failsafe: what happens if a judge returns no label: the rollout fails at this model
            (`fail`), or the library's verdict counts (`library`). If the judge cannot be called,
            the rollout always fails.
        judge_params: the parameters of the judge's calls, such as temperature.
        """
        if tool_pattern is not None:
            try:
                re.compile(tool_pattern)
            except re.error as error:
                raise ValueError(f"tool_pattern is not a regular expression: {error}") from None
        self._tool_pattern = tool_pattern
        self._answer_from = answer_from
        self._evaluated = evaluated
        self.processes = judge_workers
        self._timeout_s = judge_timeout_s
        self._judge = judge
        self._judge_unboxed = judge_unboxed
        self._fails = judge_failsafe == "fail"
        self._judge_params = judge_params or {}
        self._warming: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Import what the check of a task needs, so that the first check takes no longer."""
        await asyncio.to_thread(worker.load)

    async def close(self) -> None:
        """Stop the start of further worker processes."""
        await cancel_and_wait(self._warming)
        self._warming = None

    def called_models(self) -> Sequence[str]:
        """The judge, with the option `judge`."""
        return ("judge",) if self._judge else ()

    def types_by_tool(self) -> Mapping[str, Mapping[str, Any]]:
        """The type of the calculator's expression: text that matches `tool_pattern`, if set."""
        if self._tool_pattern is None:
            return {}
        held = Annotated[str, msgspec.Meta(pattern=self._tool_pattern)]
        return {"calculator": {"expression": held}}

    def check_task(self, task: Task) -> None:
        """The row must have an `expected_answer` that is text or a number."""
        refuse_others(task, _SERVERS if not self._judge else _SERVERS_WITH_THIS_JUDGE)
        verifier = task.payload.get("verifier_type", "math_with_judge")
        if verifier != "math_with_judge":
            raise TaskInvalid(
                "verifier_type", "must be math_with_judge; write this value or remove the key"
            )
        expected = _expected(task)
        if not expected.strip():
            raise TaskInvalid("expected_answer", "is empty; write the right answer")
        if not self._judge and not self.compat_of(task):
            try:
                worker.check_expected(expected)
            except ExpectedAnswerError as error:
                raise TaskInvalid("expected_answer", str(error)) from None

    async def create_state(self, task: Task, seed: int) -> None:
        """No state. The first session starts the worker processes in the background."""
        if self._warming is None:
            self._warming = asyncio.get_running_loop().create_task(self._warm())

    async def _warm(self) -> None:
        try:
            await self.process_pool.warm()
        except PoolError as error:
            # The first verdict starts its worker itself and reports why it cannot.
            _LOGGER.warning(
                "the worker processes of the environment 'math' could not start: %s", error
            )

    @tool
    async def calculator(self, expression: str) -> str:
        """Evaluate an arithmetic expression exactly.

        Args:
            expression: numbers, + - * / // % ^, parentheses, and functions such as sqrt(2)
        """
        from gymmesh_resource.environments.math.calculator import (  # late: it needs the extra
            CalculatorError,
            evaluate,
        )

        try:
            return evaluate(expression)  # on the event loop: it ends within milliseconds
        except CalculatorError as error:
            raise ToolError(str(error)) from None

    def expected(self, task: Task) -> Expected:
        """The row's `expected_answer` in a box."""
        return Expected(_expected(task), "number", form=f"The answer is \\boxed{{{ANSWER}}}.")

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Compare the model's answer with the expected one: by the rules, then by the judge."""
        text = rollout.answer if self._answer_from == "last" else rollout.text
        with rollout.stage("compare") as stage:
            score = await self._score(rollout.task, text)
            stage.note = f"answer found in: {score.source}"
        evidence: dict[str, Any] = {
            "extracted_answer": score.extracted,
            "expected_answer_read": score.expected,
            "answer_source": score.source,
        }
        if score.failure:
            evidence["failure_reason"] = score.failure
        if score.compared:
            evidence["compared"] = list(score.compared)
        if not self._judge:
            return Verdict(score.reward, evidence=evidence, explanation=_explained(score))
        said: list[str] = []
        reward = score.reward
        answer = last_box(text)
        if answer is None and self._judge_unboxed:
            answer = text[-_UNBOXED:]
        if reward < 1.0 and answer and answer.strip():
            with rollout.stage("judge") as stage:
                try:
                    reward = float(await self._equal(session, rollout.task, answer.strip(), said))
                except AnswerUnjudged as error:
                    evidence["failure_reason"] = str(error)
                stage.note = f"asked {len(said)} times"
        evidence |= {"library_reward": score.reward, "judge_evaluations": said or None}
        return Verdict(reward, evidence=evidence, explanation=_explained(score))

    async def _score(self, task: Task, text: str) -> MathScore:
        """The verdict without the judge. Raises `TaskInvalid` where there can be none."""
        expected = _expected(task)
        try:
            if self.compat_of(task) == "nemo":
                return await self.compare_as_nemo(expected, text)
            return await self.compare(expected, text, "\n".join(_asked(task)))
        except ExpectedAnswerError as error:
            if not self._judge:
                raise TaskInvalid("expected_answer", str(error)) from None
            found = find_answer(text)
            answer = found.texts[0] if found.texts else None
            return unjudged(
                expected,
                answer,
                found.source,
                "only a judge can compare answers with this expected answer",
            )

    async def compare(
        self, expected_answer: str, response_text: str, prompt: str = ""
    ) -> MathScore:
        """The verdict. An answer that cannot be compared within the limits gets 0.0, if the
        expected answer alone can be compared.

        Raises `ExpectedAnswerError` (correct the task), TimeoutError, `PoolError`.
        """
        try:
            return await self.work_on_answer(
                worker.judge,
                expected_answer,
                response_text,
                prompt,
                self._evaluated,
                cpu_s=self._timeout_s,
            )
        except AnswerTooMuch as error:
            failure = str(error)
        await self._check(worker.compare_expected, expected_answer)
        found = find_answer(response_text[-_SEARCHED:])
        answer = found.texts[0] if found.texts else None
        return unjudged(expected_answer, answer, found.source, failure)

    async def compare_as_nemo(self, expected_answer: str, response_text: str) -> MathScore:
        """The verdict of math-verify alone, as in NeMo Gym. Raises as `compare`."""
        try:
            return await self.work_on_answer(
                library.judge, expected_answer, response_text, cpu_s=self._timeout_s
            )
        except AnswerTooMuch as error:
            failure = str(error)
        await self._check(library.check_expected, expected_answer)
        return library.failed(expected_answer, response_text, failure)

    async def _check(self, check: Callable[[str], None], expected_answer: str) -> None:
        """Raises `ExpectedAnswerError` where the expected answer itself takes too much."""
        try:
            await self.work_on_answer(check, expected_answer, cpu_s=self._timeout_s)
        except AnswerTooMuch as error:
            raise ExpectedAnswerError(f"cannot be compared with any answer: {error}") from None

    async def _equal(
        self, session: Session[None], task: Task, answer: str, said: list[str]
    ) -> bool:
        """Whether the judge calls the answers equal in both orders; adds what it says.

        Raises `AnswerUnjudged`, MODEL_*.
        """
        for swapped in (False, True):
            equal = await judged(partial(self._label, session, task, said, swapped), answer)
            if equal is None and self._fails:
                raise MeshError(
                    errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
                    "the judge returns no label for any answer",
                    metadata={"model": "judge", "cause": "no label"},
                )
            if not equal:
                return False
        return True

    async def _label(
        self, session: Session[None], task: Task, said: list[str], swapped: bool, about: str
    ) -> bool | None:
        """The judge's label, asked once more where it gives none. Raises MODEL_*."""
        first, second = _expected(task), about
        if swapped:
            first, second = second, first
        prompt = comparison(_question(task), first, second)
        for _ in range(2):
            answer = await session.ask("judge", prompt, system=SYSTEM, **self._judge_params)
            said.append(answer.text[-_SAID:])
            equal = read_label(answer.text)
            if equal is not None:
                return equal
        return None


def _question(task: Task) -> str:
    """The row's `question`, else its last user message."""
    question = task.payload.get("question")
    if isinstance(question, str) and question.strip():
        return question
    return next(reversed(_asked(task)), "")


def _asked(task: Task) -> list[str]:
    """What the user's messages say, in order."""
    params = task.message.params
    items = (item for item in params.input if item.HasField("message"))
    said = [text_of(item) for item in items if item.message.role == "user"]
    return [params.input_text, *said] if params.input_text else said


def _explained(score: MathScore) -> str:
    if score.extracted is None:
        return f"expected {score.expected}, found no answer"
    reason = f" ({score.failure})" if score.failure else ""
    return f"expected {score.expected}, got {score.extracted}{reason}"


def _expected(task: Task) -> str:
    value = task.require("expected_answer", str, int, float)
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")  # 1e-07 is not mathematics as LaTeX has it
    return str(value)
