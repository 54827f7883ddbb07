"""Reads the keys of a task row that decide how an answer is judged. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from gymmesh_resource.environments.llm_judge.verdicts import Criterion
from gymmesh_resource.environments.row_fields import optional
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.task import Task
from gymmesh_responses import text_of

IS_FACE = True  # see tools/import_faces.py

JudgingMode: TypeAlias = Literal["equivalence", "rubric", "score", "rule"]
_TEXT_KEYS = ("question", "criterion", "criteria", "requirement", "description", "title", "text")
_CRITERIA = 100


def mode_of(task: Task, wanted: Literal["auto"] | JudgingMode) -> JudgingMode:
    """How the task is judged: as configured, or by what its row has. Raises `TaskInvalid`."""
    if wanted != "auto":
        return wanted
    if _rubric(task) is not None:
        return "rubric"
    if expected(task) is not None:
        return "equivalence"
    if instructions(task):
        return "score"
    raise TaskInvalid(
        "expected_answer",
        "is missing, and the keys 'rubric' and 'judge_instructions' are also missing; write one of "
        "these three keys",
    )


def expected(task: Task) -> str | None:
    """The reference answer, at the row's top level or in `metadata`; None if there is none."""
    found = _first(task, "expected_answer")
    if found is None:
        return None
    field, value = found
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TaskInvalid(field, "must be text or a number")
    return str(value)


def instructions(task: Task) -> str:
    """The row's `judge_instructions`; empty if the row has none."""
    return optional(task, "judge_instructions", str) or ""


def output_regex(task: Task) -> str | None:
    """The row's own pattern for finding the answer in a response."""
    metadata = task.payload.get("template_metadata")
    pattern = metadata.get("output_regex") if isinstance(metadata, Mapping) else None
    if not pattern:
        return None
    field = "template_metadata.output_regex"
    if not isinstance(pattern, str):
        raise TaskInvalid(field, "must be text")
    try:
        re.compile(pattern, re.MULTILINE | re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise TaskInvalid(field, f"is not a regular expression: {error}") from None
    return pattern


def question(task: Task) -> str:
    """The last message of the user in the prompt, else the row's `question`; may be empty."""
    for item in reversed(task.message.params.input):
        if item.WhichOneof("kind") == "message" and item.message.role == "user":
            text = text_of(item).strip()
            if text:
                return text
    value = task.payload.get("question")
    return value.strip() if isinstance(value, str) else ""


def context(task: Task) -> str:
    """The conversation before the answer: the row's `context`, or the prompt's messages."""
    given = task.payload.get("context")
    if isinstance(given, str) and given:
        return given
    messages = [item for item in task.message.params.input if item.WhichOneof("kind") == "message"]
    return "\n\n".join(f"[{item.message.role.upper()}]: {text_of(item)}" for item in messages)


def criteria(task: Task, *, as_nemo: bool = False) -> list[Criterion]:
    """The rubric's lines. Raises `TaskInvalid`, which names the line.

    as_nemo: any `pass_criteria` but NO is a YES, as in NeMo Gym.
    """
    field, rubric = _rubric(task) or ("rubric", None)
    if isinstance(rubric, str):
        if rubric.lstrip().startswith(("[{", '["')):
            raise TaskInvalid(
                field, "is text that contains a JSON list; write a JSON list instead of text"
            )
        rubric = [rubric]
    if not isinstance(rubric, Sequence) or not rubric:
        raise TaskInvalid(field, "must be a list of at least one criterion")
    if len(rubric) > _CRITERIA:
        raise TaskInvalid(field, f"has more than {_CRITERIA} criteria, the maximum")
    found = [_criterion(line, f"{field}[{number}]", as_nemo) for number, line in enumerate(rubric)]
    if not any(part.weight > 0 for part in found):
        raise TaskInvalid(
            field, "has no criterion with a positive weight; add a criterion with a positive weight"
        )
    return found


def _criterion(line: Any, field: str, as_nemo: bool) -> Criterion:
    if isinstance(line, str):
        line = {"criterion": line}
    if not isinstance(line, Mapping):
        raise TaskInvalid(field, "must be text or an object")
    text = next((line[key] for key in _TEXT_KEYS if line.get(key)), None)
    if not isinstance(text, str) or not text.strip():
        raise TaskInvalid(
            field, "has no text under the key 'question', 'criterion' or 'description'"
        )
    if "operator" in line:
        raise TaskInvalid(
            f"{field}.operator",
            "is not supported; run rows with an operator through the environment nemo_gym",
        )
    passes = _passes(line.get("pass_criteria", "YES"), f"{field}.pass_criteria", as_nemo)
    key = "weight" if "weight" in line else "points"
    weight = line.get(key, 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TaskInvalid(f"{field}.{key}", "must be a number")
    if not math.isfinite(weight) or abs(weight) > 1e9:
        raise TaskInvalid(f"{field}.{key}", "must be from -1e9 to 1e9")
    return Criterion(text.strip(), passes, float(weight))


def _passes(value: Any, field: str, as_nemo: bool) -> bool:
    """The judge's verdict that fulfils a criterion: whether it is a yes."""
    said = value.strip().upper() if isinstance(value, str) else None
    if said is None or not (as_nemo or said in ("YES", "NO")):
        raise TaskInvalid(field, f"must be 'YES' or 'NO', not {str(value)[:40]!r}")
    return said != "NO"


def _rubric(task: Task) -> tuple[str, Any] | None:
    return _first(task, "rubric", "rubrics")


def _first(task: Task, *keys: str) -> tuple[str, Any] | None:
    """The first of these keys that has a value, in the row or in its metadata, and that value."""
    metadata = task.payload.get("metadata")
    inner = metadata if isinstance(metadata, Mapping) else {}
    for where, holder in (("", task.payload), ("metadata.", inner)):
        for key in keys:
            if holder.get(key) not in (None, ""):
                return where + key, holder[key]
    return None
