"""The task's samples as rows."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageUser, ModelName
from inspect_ai.scorer import Target
from inspect_ai.solver import TaskState

from gymmesh_resource.environments.inspect.peer.models import (
    PromptReached,
    activate,
    reached,
    responses_input,
)
from gymmesh_resource.environments.inspect.peer.sandboxes import services_of

_PROMPT_S = 10.0
_SHOWN = 500


def unique_samples(task: Task, limit: int | None) -> dict[str, Sample]:
    """The samples by id; those without one get their number, as in Inspect. Raises ValueError."""
    samples: dict[str, Sample] = {}
    for number, sample in enumerate(itertools.islice(task.dataset, limit), start=1):
        if sample.id is None:
            sample.id = number
        if str(sample.id) in samples:
            raise ValueError(f"two samples of the task have the id {sample.id!r}")
        samples[str(sample.id)] = sample
    return samples


async def row_of(sample: Sample, evaluation: Any) -> dict[str, Any]:
    """A sample's `id`, its `input` as Responses items, and its `sandbox`; or the `problem`."""
    row: dict[str, Any] = {"id": str(sample.id), "input": [], "sandbox": None, "problem": ""}
    try:
        row["input"] = await responses_input(await _prompt_of(sample, evaluation))
        sandbox = evaluation.sandbox
        if sample.sandbox is not None and (sandbox is None or sample.sandbox.config is not None):
            sandbox = sample.sandbox
        row["sandbox"] = None if sandbox is None else services_of(sandbox.config)
        json.dumps(row, allow_nan=False)
    except Exception as error:
        row["input"], row["sandbox"] = [], None
        row["problem"] = f"{type(error).__name__}: {error}"[:_SHOWN]
    return row


async def _prompt_of(sample: Sample, evaluation: Any) -> list[ChatMessage]:
    """The messages with which the solver first calls the model, where that can be told without a
    sandbox; else the sample's input. Raises what the solver does, where it alone shows the choices.
    """
    sample = sample.model_copy(deep=True)
    given = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else None
    messages: list[ChatMessage] = given or list(sample.input)
    if not evaluation.ours:
        return messages
    state = TaskState(
        model=ModelName(evaluation.model),
        sample_id=sample.id or "",
        epoch=1,
        input=sample.input,
        messages=[one.model_copy(deep=True) for one in messages],
        target=Target(sample.target),
        choices=sample.choices,
        metadata=sample.metadata or {},
    )
    prompt: list[ChatMessage] = []
    reached.set(prompt)
    activate(evaluation.model)

    async def stop(state: TaskState, *_args: Any, **_named: Any) -> TaskState:
        prompt.extend(state.messages)
        raise PromptReached

    try:
        with anyio.fail_after(_PROMPT_S):
            await evaluation.solver(state, stop)
    except Exception:
        if not prompt and sample.choices is not None:
            raise
    return prompt or messages
