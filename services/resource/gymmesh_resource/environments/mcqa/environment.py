"""Multiple choice questions. Task rows are NeMo Gym's mcqa rows."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Annotated, Any, ClassVar

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.blame import unless_always
from gymmesh_resource.environments.mcqa import nemo, verdict
from gymmesh_resource.environments.mcqa.question import (
    MODES,
    ChoiceQuestion,
    ReadingMode,
    question_of,
)
from gymmesh_resource.environments.row_fields import filled_text, one_of
from gymmesh_resource.expected import ANSWER, Expected
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_responses import text_of

_ASKS_FOR_COLON = re.compile(r"answer[*_]{0,2}\s*:", re.IGNORECASE)


# Forms in which a policy may name a letter, tried with the patterns that a task brings.
_BOXED = f"The answer is \\boxed{{{ANSWER}}}."
_SCORED_BOX = f"\\boxed{{{ANSWER}}}"  # ends with the letter, so that no words after it count
_COLON = f"Answer: {ANSWER}"
_FORMS = (f"ANSWER IS {ANSWER}", _COLON, f"The answer is {ANSWER}.", _BOXED, ANSWER)


class McqaEnvironment(Environment[None]):
    """Multiple choice questions; the reward is 1.0 for the right letter, else 0.0."""

    version = "6"
    references: ClassVar[tuple[str, ...]] = ("nemo",)
    examples = "tasks.jsonl"
    processes = 1
    # A task's pattern may run away on a response; in a worker that costs no more than this.
    process_memory = 512 * 1024**2

    def __init__(
        self,
        *,
        grading_mode: ReadingMode | None = None,
        label_in_box: bool = False,
        pattern_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 5.0,
    ) -> None:
        r"""Options.

        grading_mode: the mode for all tasks, whatever their rows say.
        label_in_box: whether ``\boxed{C: its text}`` chooses C in strict_single_letter_boxed, and
            with compat in both boxed modes.
        pattern_timeout_s: seconds of processor time for a row's own patterns (`output_regex`).
        """
        self._mode = grading_mode
        self._label_in_box = label_in_box
        self._timeout_s = pattern_timeout_s

    def check_task(self, task: Task) -> None:
        """The row must have `options`, and one of their letters as `expected_answer`. The prompt
        must ask for the answer in the form that the row's mode reads.
        """
        expected, question = _expected(task), _question(task)
        if len(expected) != 1 or not expected.isalpha():
            raise TaskInvalid("expected_answer", "must be a single letter")
        if not _patterns(task):
            if expected not in question.letters:
                raise TaskInvalid(
                    "expected_answer", f"is {expected}, which is not among the options"
                )
            if self._mode is None:  # the operator's own word is not questioned
                _fitting(task, _mode(task))
        _mode(task)

    def expected(self, task: Task) -> list[Expected]:
        """The letter, and the option's text if the mode reads texts too."""
        letter, question = _expected(task), _question(task)
        patterns, mode = _patterns(task), self._mode or _mode(task)
        form = _BOXED if _is_boxed(mode) else _COLON
        if patterns:
            options = dict(question.options)
            said = [one for one in _FORMS if letter == _read(one, letter, patterns, options)]
            if not said:
                return []
            form = said[0]
        choices = tuple(sorted(question.letters))
        answers = [Expected(letter, "choice", form, choices=choices)]
        texts = [text for _, text in question.options]
        text = next((text for name, text in question.options if name == letter), "")
        if mode == "lenient_boxed" and not patterns and text and texts.count(text) == 1:
            answers.append(Expected(text, "choice", form, choices=texts))
        return answers

    def choices(self, task: Task) -> list[str]:
        """The letters, each in a form that the task's mode or patterns read. Empty if they read no
        form for every letter.
        """
        question, patterns = _question(task), _patterns(task)
        letters = sorted(question.letters)
        form = _SCORED_BOX if _is_boxed(self._mode or _mode(task)) else _COLON
        if patterns:
            options = dict(question.options)
            forms = (one for one in (*_FORMS, _SCORED_BOX) if _reads_all(one, patterns, options))
            form = next(forms, "")
        return [form.replace(ANSWER, letter) for letter in letters] if form else []

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Compare the chosen letter with the expected letter."""
        task = rollout.task
        question, expected = _question(task), _expected(task)
        text = rollout.text.strip()
        evidence: dict[str, object] = {"extracted_answer": None, "expected_answer": expected}
        with rollout.stage("choose") as stage:
            try:
                patterns = _patterns(task) if text else []
                letter = (
                    await self._by_patterns(text, task, question, patterns) if patterns else None
                )
            except AnswerTooMuch:
                letter = None
                evidence["problem"] = "the task's pattern took too long on this response"
            stage.note = "by the task's pattern" if letter else ""
            if letter is None and text:
                mode = self._mode or _mode(task)
                stage.note = f"by {mode}"
                choose = nemo.choose if self.compat_of(task) else verdict.choose
                letter = choose(
                    text,
                    question,
                    mode,
                    label_in_box=self._label_in_box,
                    answer_prefix=_template(task).get("answer_prefix") or "",
                )
        evidence["extracted_answer"] = letter
        found = "found no choice" if letter is None else f"got {letter}"
        return Verdict(
            float(letter == expected),
            evidence=evidence,
            explanation=f"expected {expected}, {found} ({stage.note})",
        )

    async def _by_patterns(
        self, text: str, task: Task, question: ChoiceQuestion, patterns: list[str]
    ) -> str | None:
        """The letter that the task's patterns find. Raises `AnswerTooMuch` where they cannot read
        this response, and TimeoutError where they can read none.
        """
        options: dict[str, str] = {}  # the first of a letter that comes twice
        for letter, option in question.options:
            options.setdefault(letter, option)

        by_patterns = nemo.by_patterns if self.compat_of(task) else verdict.by_patterns

        def find(read: str) -> Awaitable[str | None]:
            return self.work_on_answer(by_patterns, read, patterns, options, cpu_s=self._timeout_s)

        problem = (
            "template_metadata.output_regex takes too long even on a single letter; "
            "write a simpler pattern"
        )
        return await unless_always(lambda: find(text), lambda: find("A"), problem)


def _is_boxed(mode: ReadingMode) -> bool:
    return mode in ("strict_single_letter_boxed", "lenient_boxed")


def _reads_all(form: str, patterns: list[str], options: dict[str, str]) -> bool:
    """Whether the patterns read every letter in this form."""
    return all(letter == _read(form, letter, patterns, options) for letter in options)


def _read(form: str, letter: str, patterns: list[str], options: dict[str, str]) -> str | None:
    return verdict.by_patterns(form.replace(ANSWER, letter), patterns, options)


def _fitting(task: Task, mode: ReadingMode) -> None:
    """Raise `TaskInvalid` where the prompt asks for another form than the mode reads: every right
    answer would be judged wrong.
    """
    params = task.message.params
    texts = (params.instructions, params.input_text, *map(text_of, params.input))
    prompt = "\n".join(texts).strip()
    if not prompt:
        return
    asks_for_box = "\\boxed" in prompt
    if mode in ("strict_single_letter_boxed", "lenient_boxed"):
        if not asks_for_box:
            raise TaskInvalid(
                "grading_mode",
                f"is {mode}, but the prompt doesn't ask for \\boxed{{}}. Use "
                'lenient_answer_colon_md for "Answer: C", or template_metadata.output_regex for '
                "any other form",
            )
    elif asks_for_box and (mode == "lenient_answer_colon" or not _ASKS_FOR_COLON.search(prompt)):
        raise TaskInvalid(
            "grading_mode",
            f"is {mode}, but the prompt asks for \\boxed{{}}. Use lenient_boxed",
        )


def _expected(task: Task) -> str:
    return filled_text(task, "expected_answer").strip().upper()


def _question(task: Task) -> ChoiceQuestion:
    """The options: a list of objects from letter to text, of which null ones do not count."""
    if not task.payload.get("options") and _patterns(task):
        return ChoiceQuestion(())
    options = task.require("options", list)
    found: list[tuple[str, str]] = []
    for entry in options:
        if not isinstance(entry, dict):
            raise TaskInvalid("options", 'must be a list of objects such as {"A": "the text of A"}')
        for key, text in entry.items():
            if text is not None and not isinstance(text, str):
                raise TaskInvalid("options", f"has no text for {key!r}")
            if text is not None and len(key) == 1 and key.isalpha():
                found.append((key.upper(), text))
    if not found:
        raise TaskInvalid("options", "has no option with a single letter and a text")
    return question_of(tuple(found))


def _mode(task: Task) -> ReadingMode:
    return one_of(MODES, task.payload.get("grading_mode") or MODES[0], "grading_mode")


def _template(task: Task) -> dict[str, Any]:
    template = task.payload.get("template_metadata") or {}
    if not isinstance(template, dict):
        raise TaskInvalid("template_metadata", "must be an object")
    return template


def _patterns(task: Task) -> list[str]:
    patterns = _template(task).get("output_regex") or []
    if isinstance(patterns, str):
        return [patterns]
    if isinstance(patterns, list) and all(isinstance(pattern, str) for pattern in patterns):
        return patterns
    raise TaskInvalid("template_metadata.output_regex", "must be a pattern or a list of patterns")
