"""Prompts with checkable instructions. Task rows are NeMo Gym's instruction_following rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.blame import unless_always
from gymmesh_resource.environments.instruction_following.registry import ArgumentError
from gymmesh_resource.environments.instruction_following.verdict import (
    MODES,
    Bound,
    GradingMode,
    UnknownInstruction,
    bind,
    followed_by,
    reward,
)
from gymmesh_resource.environments.row_fields import one_of
from gymmesh_resource.expected import Expected
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_runtime.extras import Extra

# Characters of a response that are checked in a thread.
_SHORT = 5_000


class InstructionFollowingEnvironment(Environment[None]):
    """Prompts with instructions that a program can check; the reward is 1.0 if the answer follows
    all instructions, or the share of followed instructions.
    """

    version = "2"
    # NeMo Gym's checks are IFEval's.
    references = ("ifeval", "nemo")
    examples = "tasks.jsonl"
    extra = Extra("instruction-following", ("langdetect", "nltk", "punkt"))
    # The libraries with their models, and a long response in words; beyond this it is runaway.
    process_memory = 2 * 1024**3

    def __init__(
        self,
        *,
        grading_mode: GradingMode | None = None,
        check_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0,
    ) -> None:
        """Options.

        grading_mode: the mode for all tasks, whatever their rows say.
        check_timeout_s: seconds of processor time for the checks of a long response. A response
            that exceeds the limit follows no instruction.
        """
        self._mode = grading_mode
        self._timeout_s = check_timeout_s

    def check_task(self, task: Task) -> None:
        """The row must have `instruction_id_list` and `kwargs`, one for each instruction."""
        self._checks(task)
        _mode(task)

    def expected(self, task: Task) -> Expected | None:
        """The row's `right_answer`, which follows all instructions, if the row has one."""
        answer = task.payload.get("right_answer")
        return Expected(answer) if isinstance(answer, str) and answer.strip() else None

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Check the model's last message."""
        bound, as_ifeval = self._checks(rollout.task)
        names = [name for name, _ in bound]
        with rollout.stage("check") as stage:
            try:
                results = await self._followed(rollout.answer, bound, as_ifeval)
            except AnswerTooMuch:
                # Some checks take quadratic time. An answer must not gain by it.
                results = [False] * len(names)
                stage.note = "the checks of this response took too much time or memory"
        evidence: dict[str, object] = {
            "follow_all_instructions": all(results),
            "follow_instruction_list": results,
            "instruction_id_list": names,
        }
        if stage.note:
            evidence["problem"] = stage.note
        missed = [name for name, ok in zip(names, results, strict=True) if not ok]
        return Verdict(
            reward(results, self._mode or _mode(rollout.task)),
            evidence=evidence,
            explanation=f"not followed: {', '.join(missed)}" if missed else "all are followed",
        )

    def _checks(self, task: Task) -> tuple[Bound, bool]:
        """The instructions, and whether IFEval's own checks are to be used."""
        as_ifeval = bool(self.compat_of(task))
        return _checks(task, as_ifeval), as_ifeval

    async def _followed(self, text: str, bound: Bound, as_ifeval: bool) -> list[bool]:
        """For each instruction whether it is followed. Raises `AnswerTooMuch`."""
        if len(text) <= _SHORT:  # it ends soon: a process would cost more
            return await asyncio.to_thread(followed_by, text, bound, as_ifeval)

        def check(read: str) -> Awaitable[list[bool]]:
            return self.work_on_answer(followed_by, read, bound, as_ifeval, cpu_s=self._timeout_s)

        return await unless_always(
            lambda: check(text),
            lambda: check("A word."),
            "the checks take too long even on a short response",
        )


def _field(task: Task, name: str) -> tuple[str, object]:
    """A key of the row, or of its `verifier_metadata`: how to call it, and its value."""
    metadata = task.payload.get("verifier_metadata")
    if isinstance(metadata, dict) and name in metadata:
        return f"verifier_metadata.{name}", metadata[name]
    return name, task.payload.get(name)


def _checks(task: Task, as_ifeval: bool) -> Bound:
    """The instructions with their arguments, all of which can be checked."""
    where, names = _field(task, "instruction_id_list")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise TaskInvalid(where, "must be a list of at least one instruction id")
    place, given = _field(task, "kwargs")
    if not isinstance(given, list) or len(given) != len(names):
        raise TaskInvalid(
            place, f"must be a list with one entry for each instruction, {len(names)} in all"
        )
    bound: Bound = []
    for index, (name, arguments) in enumerate(zip(names, given, strict=True)):
        if arguments is not None and not isinstance(arguments, dict):
            raise TaskInvalid(f"{place}[{index}]", "must be an object or null")
        try:
            bind(name, arguments or {}, as_ifeval)
        except UnknownInstruction as error:
            raise TaskInvalid(f"{where}[{index}]", str(error)) from None
        except ArgumentError as error:
            problem = f"{error.problem}; {name} needs this argument"
            raise TaskInvalid(f"{place}[{index}].{error.name}", problem) from None
        bound.append((name, arguments or {}))
    return bound


def _mode(task: Task) -> GradingMode:
    where, wanted = _field(task, "grading_mode")
    return "binary" if wanted is None else one_of(MODES, wanted, where)
