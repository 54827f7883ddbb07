"""Answers judged by a second model: against a reference, by a rubric, or with a score."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.llm_judge import prompts, rows, texts
from gymmesh_resource.environments.llm_judge.control import AnswerUnjudged
from gymmesh_resource.environments.llm_judge.judge import (
    Equivalence,
    Judge,
    JudgeDecision,
    UnreadableReply,
)
from gymmesh_resource.environments.llm_judge.verdicts import (
    NO,
    SCORE_LABEL,
    YES,
    Aggregation,
    Criterion,
    aggregate,
    fulfils,
    read_criterion,
    read_score,
    without_thoughts,
)
from gymmesh_resource.environments.nemo_rows import refuse_others
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.expected import ANSWER, Expected, is_number
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome, Skipped, Verdict
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_responses import dumps

T = TypeVar("T")
_Regex = str | None
# Seconds of processor time for a pattern to search an answer, and for two texts to be compared.
_REGEX_S = 3.0
_COMPARE_S = 10.0
_LABEL = 3
# NeMo Gym's servers that judge so, and the keys that this environment judges by.
_SERVERS = {
    "equivalence": ("equivalence_llm_judge",),
    "rule": ("equivalence_rule",),
    "rubric": ("multichallenge",),
    "score": (),
}
_KEYS = ("rubric", "template_metadata.output_regex")
_EVIDENCE = 1_000


class LlmJudgeEnvironment(Environment[None]):
    """Answers judged by the model `judge`; rows as in NeMo Gym.

    The reward is 1.0 for an equivalent answer, the fulfilled share of a rubric, or a score from 0.0
    to 1.0.
    """

    version = "2"
    references = ("nemo",)
    examples = "tasks.jsonl"
    models = ("judge",)
    processes = 1
    process_memory = 1024**3

    def __init__(
        self,
        *,
        mode: Literal["auto", "equivalence", "rubric", "score", "rule"] = "auto",
        judge_params: dict[str, Any] | None = None,
        judge_system: str | None = None,
        judge_prompt_template: str | None = None,
        judge_concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64,
        judge_equal_label: str = "[[A=B]]",
        judge_not_equal_label: str = "[[A!=B]]",
        check_twice_swap: bool = False,
        reward_if_swap_fails: float = 0.0,
        question_extract_regex: _Regex = None,
        response_extract_regex: _Regex = None,
        use_per_record_regex: bool = True,
        extraction_length_threshold: int | None = 120,
        check_full_generation_on_fail: bool = True,
        reward_if_full_generation_succeeds: float = 0.5,
        aggregation: Aggregation = "weighted",
        least_score: float = 1.0,
        most_score: float = 10.0,
        grading_rule: texts.Rule = "exact",
        max_answer_chars: Annotated[int, msgspec.Meta(ge=1)] | None = None,
        unreadable: Literal["fail", "skip"] = "fail",
    ) -> None:
        """Options. Options that NeMo Gym's judges have too have the same names and defaults.

        mode: how to judge. `auto` chooses by the row: its rubric, otherwise its expected_answer,
            otherwise its judge_instructions. `rule` compares texts by `grading_rule`, without a
            judge.
        judge_params: parameters of the judge's calls, as in the Responses API.
        judge_system: replaces the first sentence of the judge's instructions.
        judge_prompt_template: the prompt of mode `equivalence`.
        unreadable: what happens if the judge has no verdict on any answer. `fail`: the verifier
            fails, and the rollout may be retried. `skip`: the rollout is not judged.
        max_answer_chars: a longer answer gets 0.0 without a question to the judge.
        """
        if judge_prompt_template is not None:
            prompts.check_template(judge_prompt_template)
        _check_labels(judge_equal_label, judge_not_equal_label)
        _check_regex("question_extract_regex", question_extract_regex)
        _check_regex("response_extract_regex", response_extract_regex)
        if not least_score < most_score:
            raise ValueError("least_score must be below most_score")
        given = (0.0, 1.0, reward_if_swap_fails, reward_if_full_generation_succeeds)
        self.reward_range = (min(given), max(given))
        self._mode = mode
        self._params = dict(judge_params or {})
        self._system = prompts.SYSTEM if judge_system is None else judge_system
        self._equivalence = Equivalence(
            judge_prompt_template, judge_equal_label, judge_not_equal_label
        )
        self._swap, self._swap_reward = check_twice_swap, reward_if_swap_fails
        self._question_regex, self._response_regex = question_extract_regex, response_extract_regex
        self._row_regex, self._threshold = use_per_record_regex, extraction_length_threshold
        self._rescue = check_full_generation_on_fail
        self._rescue_reward = reward_if_full_generation_succeeds
        self._aggregation: Aggregation = aggregation
        self._least, self._most = least_score, most_score
        self._rule: texts.Rule = grading_rule
        self._max_chars = max_answer_chars
        self._unreadable = unreadable
        self._places = asyncio.Semaphore(judge_concurrency)

    def called_models(self) -> Sequence[str]:
        """The judge, except in mode `rule`."""
        return () if self._mode == "rule" else self.models

    def check_task(self, task: Task) -> None:
        mode = rows.mode_of(task, self._mode)
        refuse_others(task, _SERVERS[mode], but=_KEYS)
        if mode == "rubric":
            rows.criteria(task, as_nemo=self._as_nemo(task))
        elif mode != "score" and rows.expected(task) is None:
            raise TaskInvalid(
                "expected_answer", "is missing; the modes 'equivalence' and 'rule' need this key"
            )
        rows.expected(task)
        rows.instructions(task)
        rows.output_regex(task)

    def expected(self, task: Task) -> Expected | None:
        """The reference. For a rubric: a JSON object of the criteria that an answer meets, which a
        scripted judge can read.
        """
        mode = rows.mode_of(task, self._mode)
        if mode == "rubric":
            # What must not apply comes first, so that an answer without its last key is worse.
            criteria = sorted(rows.criteria(task), key=lambda one: one.weight > 0)
            met = {one.text: (one.weight > 0) == one.passes for one in criteria}
            aggregated = self._aggregation in ("all", "weighted", "mean")
            return Expected(dumps(met).decode(), "json") if aggregated else None
        reference = rows.expected(task)
        if mode == "score" or reference is None:
            return None
        pattern = rows.output_regex(task) if self._row_regex else None
        form = f"Answer: {ANSWER}" if pattern and pattern.startswith("Answer:") else ANSWER
        return Expected(reference, "number" if is_number(reference) else "text", form)

    def _as_nemo(self, task: Task) -> bool:
        """Whether replies and rubrics are read by NeMo Gym's own rules."""
        return self.compat_of(task) == "nemo"

    async def verify(self, session: Session[None], rollout: Rollout) -> Outcome:
        mode = rows.mode_of(rollout.task, self._mode)
        if mode == "rule":
            return await self._by_rule(rollout)
        answer = rollout.answer.strip()
        if mode in ("rubric", "score"):
            answer = without_thoughts(answer).strip()
        if not answer:
            return _worth_nothing(mode, "no_answer")
        if self._max_chars is not None and len(answer) > self._max_chars:
            return _worth_nothing(mode, "final_answer_too_long", answer_chars=len(answer))
        judge = Judge(
            partial(session.ask, "judge"),
            params=self._params,
            places=self._places,
            system=self._system,
        )
        judging = {
            "equivalence": self._by_reference,
            "rubric": self._by_rubric,
            "score": self._by_score,
        }[mode]
        try:
            return await judging(judge, rollout, answer)
        except AnswerUnjudged as error:
            return _worth_nothing(mode, str(error), answer_chars=len(answer))
        except UnreadableReply as error:
            if self._unreadable == "skip":
                return Skipped(f"{error}.", evidence={"mode": mode, "judge_reply": error.reply})
            raise error.fault("llm_judge") from error

    async def _by_rule(self, rollout: Rollout) -> Verdict:
        # As the field has it: all messages, with nothing between them.
        given, wanted = "".join(rollout.texts), rows.expected(rollout.task) or ""
        with rollout.stage("compare"):
            if self._rule == "exact":
                score = texts.grade("exact", given, wanted)
            else:
                try:
                    score = await self.work_on_answer(
                        texts.grade, self._rule, given, wanted, cpu_s=_COMPARE_S
                    )
                except AnswerTooMuch as error:
                    return _worth_nothing("rule", f"the comparison of this answer failed: {error}")
        evidence = {"mode": "rule", "equivalence_score": score}
        explanation = f"the texts match to {score:.0%} according to the rule {self._rule}"
        return Verdict(score, evidence=evidence, explanation=explanation)

    async def _by_reference(self, judge: Judge, rollout: Rollout, answer: str) -> Verdict:
        """Equivalence with the expected answer, by NeMo Gym's steps."""
        task = rollout.task
        expected = rows.expected(task) or ""
        question = rows.question(task)
        if self._question_regex is not None:
            question = await self._extract(rollout, self._question_regex, question)
        own = rows.output_regex(task) if self._row_regex else None
        threshold = self._threshold
        is_long = own is not None and threshold is not None and len(expected) > threshold
        regex = None if is_long else own or self._response_regex
        generated = answer if regex is None else await self._extract(rollout, regex, answer)

        question_of = replace(self._equivalence, as_nemo=self._as_nemo(task))
        ask = partial(question_of.ask, judge, question)
        with rollout.stage("judge"):
            verdicts = [await ask(expected, generated)]
            reward = float(verdicts[0].value)
            if verdicts[0].value and self._swap and not is_long:
                verdicts.append(await ask(expected, generated, swapped=True))
                reward = 1.0 if verdicts[1].value else self._swap_reward
            elif not verdicts[0].value and self._rescue and own is not None and not is_long:
                verdicts.append(await ask(expected, answer))
                reward = self._rescue_reward if verdicts[1].value else 0.0
        labels = {True: self._equivalence.equal, False: self._equivalence.not_equal}
        evaluations = [_evaluation(one, labels[one.value]) for one in verdicts]
        evidence = {"mode": "equivalence", "extracted_answer": generated[:_EVIDENCE]}
        said = ", then ".join("equivalent" if one.value else "not equivalent" for one in verdicts)
        return Verdict(
            reward,
            evidence={**evidence, "judge_evaluations": evaluations},
            explanation=f"the judge says: {said}",
        )

    async def _by_rubric(self, judge: Judge, rollout: Rollout, answer: str) -> Verdict:
        """Each criterion by a question of its own, side by side."""
        as_nemo = self._as_nemo(rollout.task)
        criteria = rows.criteria(rollout.task, as_nemo=as_nemo)
        before = rows.context(rollout.task)
        with rollout.stage("judge"):
            decisions = await _all(
                [_ask_criterion(judge, before, answer, part, as_nemo) for part in criteria]
            )
        met = [one.value == part.passes for part, one in zip(criteria, decisions, strict=True)]
        evaluations = [
            {
                "criterion": part.text[:_EVIDENCE],
                "weight": part.weight,
                "met": ok,
                **_evaluation(one, "YES" if one.value else "NO"),
            }
            for part, one, ok in zip(criteria, decisions, met, strict=True)
        ]
        passed = met if as_nemo else fulfils(criteria, met)
        return Verdict(
            aggregate(criteria, met, self._aggregation, as_nemo=as_nemo),
            explanation=f"{sum(passed)} of {len(passed)} criteria are fulfilled",
            evidence={
                "mode": "rubric",
                "num_passed": sum(passed),
                "num_total": len(passed),
                "rubric_evaluations": evaluations,
            },
        )

    async def _by_score(self, judge: Judge, rollout: Rollout, answer: str) -> Verdict:
        task = rollout.task
        pieces = {"question": rows.question(task)}
        reference = rows.expected(task)
        if reference is not None:
            pieces["reference"] = reference
        least, most = self._least, self._most
        prompt = partial(
            prompts.score_prompt, instructions=rows.instructions(task), least=least, most=most
        )
        with rollout.stage("judge"):
            decision = await judge.decide(
                answer,
                lambda given: {**pieces, "response": given},
                prompt,
                marks=[SCORE_LABEL],
                read=partial(read_score, least=least, most=most),
                labels=f"[[{least:g}]] to [[{most:g}]]",
            )
        return Verdict(
            (decision.value - least) / (most - least),
            explanation=f"the judge's score is {decision.value:g} on the "
            f"scale from {least:g} to {most:g}",
            evidence={
                "mode": "score",
                "score": decision.value,
                "judge_evaluations": [_evaluation(decision, f"{decision.value:g}")],
            },
        )

    async def _extract(self, rollout: Rollout, regex: str, text: str) -> str:
        """What the pattern finds, or else the whole text."""
        with rollout.stage("extract") as stage:
            try:
                found = await self.work_on_answer(texts.extract_last, regex, text, cpu_s=_REGEX_S)
            except AnswerTooMuch:
                # A pattern that backtracks over this text finds nothing in it.
                stage.note = "the pattern took too long; the whole text is used"
                return text
            stage.note = "no match; the whole text is used" if found is None else "found"
        return text if found is None else found


async def _ask_criterion(
    judge: Judge, before: str, answer: str, criterion: Criterion, as_nemo: bool
) -> JudgeDecision[bool]:
    return await judge.decide(
        answer,
        lambda given: {"context": before, "response": given, "criterion": criterion.text},
        prompts.CRITERION.format_map,
        marks=[re.compile(re.escape(label)) for label in (YES, NO)],
        read=partial(read_criterion, as_nemo=as_nemo),
        labels=f"{YES}, {NO}",
    )


async def _all(asking: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; the first failure is raised when all have ended."""
    ended = await asyncio.gather(*asking, return_exceptions=True)
    results: list[T] = []
    for one in ended:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


def _worth_nothing(mode: rows.JudgingMode, reason: str, **more: int) -> Verdict:
    evidence = {"mode": mode, "failure_reason": reason, **more}
    return Verdict(0.0, evidence=evidence, explanation=reason.replace("_", " "))


def _evaluation(decision: JudgeDecision[Any], label: str) -> Mapping[str, Any]:
    return {"verdict_label": label, "judge_reply": decision.reply, "asked": decision.asked}


def _check_regex(name: str, pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"{name} is not a regular expression: {error}") from None


def _check_labels(equal: str, not_equal: str) -> None:
    for name, label in (("judge_equal_label", equal), ("judge_not_equal_label", not_equal)):
        if len(label) < _LABEL or label.isspace():
            raise ValueError(f"{name} must have at least {_LABEL} characters")
    if equal in not_equal or not_equal in equal:
        raise ValueError(
            "judge_equal_label must not contain judge_not_equal_label, and judge_not_equal_label "
            "must not contain judge_equal_label"
        )
