"""The task's samples as rows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ChatMessageUser

from gymmesh_resource.environments.inspect.peer.evaluation import TaskEvaluation
from gymmesh_resource.environments.inspect.peer.models import responses_input
from gymmesh_resource.environments.inspect.peer.sandboxes import services_of
from gymmesh_resource.environments.inspect.peer.session import SampleFailed, SampleSession

_PROMPT_S = 10.0
_SHOWN = 500


async def row_of(sample: Sample, evaluation: TaskEvaluation) -> dict[str, Any]:
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
        kind = "" if isinstance(error, SampleFailed) else f"{type(error).__name__}: "
        row["problem"] = f"{kind}{error}"[:_SHOWN]
    return row


async def _prompt_of(sample: Sample, evaluation: TaskEvaluation) -> list[ChatMessage]:
    """The messages with which the solver first calls the model, where it gets there without files
    and sandboxes; else the sample's input. Raises SampleFailed, where it alone shows the choices.
    """
    given = sample.input
    messages = [ChatMessageUser(content=given)] if isinstance(given, str) else list(given)
    if not evaluation.ours:
        return messages
    bare = sample.model_copy(deep=True, update={"files": None, "setup": None, "sandbox": None})
    session = SampleSession(None, "", bare, [], probe=True)
    await evaluation.add(session)
    await asyncio.wait([session.ended], timeout=_PROMPT_S)
    session.cancel()
    if not session.asked and sample.choices is not None:
        session.ended.result()
    return session.asked or messages
