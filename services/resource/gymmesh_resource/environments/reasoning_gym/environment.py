"""Puzzles of the reasoning-gym library, in NeMo Gym's rows, judged by the library's scorers.

Invariant: the reward is a score of the model's answer. A scorer that fails on the task's own
answer too means a broken task or verifier, and is reported as such.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, Verdict
from gymmesh_resource.environments.nemo_rows import refuse_others
from gymmesh_resource.environments.reasoning_gym import generate, scoring
from gymmesh_resource.environments.reasoning_gym.answers import extract_answer
from gymmesh_resource.environments.reasoning_gym.known_answers import known_answer
from gymmesh_resource.environments.reasoning_gym.scoring import Score, UnknownDataset
from gymmesh_resource.environments.row_fields import text_or_none
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.expected import ANSWER, AnswerKind, Expected, is_number
from gymmesh_resource.workers import AnswerTooMuch
from gymmesh_runtime.timers import cancel_and_wait

# Seconds for `tasks` to generate rows, and for a worker to name the datasets.
_GENERATE_S = 300
_NAMES_S = 30.0
_EVIDENCE = 1_000
_SHOWN = 100
# Characters of a text that is read within milliseconds: a longer one holds up the other rollouts.
_LONG = 50_000
# What SymPy writes for an integral that it could not compute.
_UNSOLVED = re.compile(r"\bIntegral\(")


class ReasoningGymEnvironment(Environment[None]):
    """Procedurally generated puzzles of more than 100 kinds, judged by reasoning-gym's scorers.

    The reward is the dataset's own score of the answer, from 0.0 to 1.0.
    """

    version = "4"
    references = ("nemo",)
    verify_needs_session = False
    in_order = False
    examples = "tasks.jsonl"
    extra = generate.REASONING_GYM
    # The library with its data takes about 0.5 GB of it.
    process_memory = 3 * 1024**3
    process_warm_up = scoring.warm_up

    def __init__(
        self,
        *,
        datasets: list[str] | None = None,
        count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100,
        seed: int = 0,
        corrections: bool = True,
        score_workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2,
        score_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0,
    ) -> None:
        """Options.

        datasets: generate `count` example tasks of these from `seed`; an empty list is all
            datasets. Without it there are a few ready-made ones.
        corrections: mend the scorers of datasets whose own are not right.
        score_workers: processes that score. score_timeout_s: seconds of processor time for one
            score; an answer that takes more is worth 0.0.
        """
        self._datasets = datasets
        self._count = count
        self._seed = seed
        self._corrected = corrections
        self.processes = score_workers
        self._timeout_s = score_timeout_s
        self._names: asyncio.Task[frozenset[str]] | None = None

    async def close(self) -> None:
        """End the question for the datasets' names."""
        await cancel_and_wait(self._names)
        self._names = None

    def examples_file(self) -> Path | None:
        """The ready-made tasks, unless there are generated ones."""
        return super().examples_file() if self._datasets is None else None

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """Generated tasks, where `datasets` asks for them; made in a process of their own."""
        if self._datasets is None:
            return ()
        command = [sys.executable, "-m", generate.__name__]
        command += [f"--count={self._count}", f"--seed={self._seed}"]
        command += [f"--dataset={name}" for name in self._datasets]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GENERATE_S, check=False
        )
        if done.returncode:
            raise DefinitionError(f"The tasks cannot be generated: {done.stderr.strip()[-500:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def check_task(self, task: Task) -> None:
        """The row must have question, answer (text or null) and metadata.source_dataset."""
        refuse_others(task, ("reasoning_gym",))
        entry = _entry(task)
        if not self._as_nemo(task) and _UNSOLVED.search(entry["answer"] or ""):
            raise TaskInvalid(
                "answer", "has an integral that is not computed; write the result of the integral"
            )

    def _as_nemo(self, task: Task) -> bool:
        """Whether answers are found and scored as NeMo Gym does: by the library alone."""
        return self.compat_of(task) == "nemo"

    async def create_state(self, task: Task, seed: int) -> None:
        """No state; but a task of a dataset that does not exist is refused before it runs."""
        if self._names is None or (self._names.done() and self._names.exception() is not None):
            asked = self.process_pool.run(scoring.dataset_names, timeout=_NAMES_S)
            self._names = asyncio.get_running_loop().create_task(asked)
        dataset = _entry(task)["metadata"]["source_dataset"]
        if dataset not in await asyncio.shield(self._names):
            raise _unknown(dataset)

    def expected(self, task: Task) -> Expected | None:
        """The dataset's own answer, where the row has one."""
        answer = known_answer(_entry(task))
        if not answer:
            return None
        kind: AnswerKind = "number" if is_number(answer) else "text"
        return Expected(answer, kind, form=f"<answer>{ANSWER}</answer>")

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Score the answer with the dataset's own scorer."""
        # As the field joins the messages of a response: with nothing between them.
        as_nemo = self._as_nemo(rollout.task)
        text = "".join(rollout.texts)
        if len(text) <= _LONG:
            answer, source = extract_answer(text, first_box=as_nemo)
        else:
            answer, source = await asyncio.to_thread(extract_answer, text, first_box=as_nemo)
        corrected = self._corrected and not as_nemo
        entry = _entry(rollout.task)
        dataset = entry["metadata"]["source_dataset"]
        with rollout.stage("score") as stage:
            try:
                if corrected and source == "text" and not answer:
                    score = Score(0.0)  # even where an empty answer is right, it has to be given
                else:
                    score = await self._judge(dataset, answer, entry, corrected)
            except UnknownDataset:
                raise _unknown(dataset) from None
            stage.note = f"answer found in: {source}"
        evidence = {
            "task_name": dataset,
            "extracted_answer": answer[:_EVIDENCE],
            "answer_source": source,
        }
        if score.error:
            evidence["scorer_error"] = score.error
        expected = "" if entry["answer"] is None else f"expected {entry['answer'][:_SHOWN]!r}, "
        return Verdict(
            score.value, evidence=evidence, explanation=f"{expected}got {answer[:_SHOWN]!r}"
        )

    async def _judge(
        self, dataset: str, answer: str, entry: dict[str, Any], corrected: bool
    ) -> Score:
        """The score; an answer that breaks the scorer is worth 0, if the task's own does not."""
        try:
            score = await self._score(dataset, answer, entry, corrected)
        except AnswerTooMuch as error:
            score = Score(0.0, f"the scorer could not score this answer: {error}")
        if score.error:
            await self._check_own(dataset, entry, corrected)
        return score

    async def _check_own(self, dataset: str, entry: dict[str, Any], corrected: bool) -> None:
        """Make sure that scorer and task are sound. Raises `TaskInvalid` or `PoolError`."""
        own = entry["answer"]
        try:
            score = await self._score(dataset, "" if own is None else own, entry, corrected)
        except AnswerTooMuch as error:
            raise TaskInvalid("metadata", f"can't be scored by {dataset}: {error}") from None
        if score.error and own is not None:
            raise TaskInvalid("metadata", f"can't be scored by {dataset}: {score.error}")

    async def _score(
        self, dataset: str, answer: str, entry: dict[str, Any], corrected: bool
    ) -> Score:
        return await self.work_on_answer(
            scoring.score, dataset, answer, entry, corrected, cpu_s=self._timeout_s
        )


def _entry(task: Task) -> dict[str, Any]:
    """The row's entry as the library knows it."""
    metadata = task.require("metadata", dict)
    if not isinstance(metadata.get("source_dataset"), str) or not metadata["source_dataset"]:
        raise TaskInvalid("metadata.source_dataset", "must be the name of a dataset")
    answer = text_or_none(task, "answer")
    return {"question": task.require("question", str), "answer": answer, "metadata": metadata}


def _unknown(dataset: str) -> TaskInvalid:
    return TaskInvalid(
        "metadata.source_dataset",
        f"names the dataset {dataset[:80]!r}, which reasoning-gym does not have",
    )
