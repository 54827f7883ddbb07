"""Scores replies by an Inspect task, one JSON line each: `python score_inspect.py FILE TASK`.

The first line written lists the samples: `input`, `target`, `choices`. Then each line read,
`{"sample": 0, "reply": "…"}`, is answered by `{"score": 1.0}`. Runs where Inspect is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from typing import Any

from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Target, value_to_float
from inspect_ai.solver import TaskState


def _load(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location("rules", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


async def _score(task: Any, number: int, reply: str) -> float:
    """What the task's scorer gives the reply, behind the task's own solvers."""
    sample = task.dataset[number]
    target = Target(sample.target)
    state = TaskState(
        model="scripted/model", sample_id=number, epoch=1, input=sample.input,
        messages=[ChatMessageUser(content=sample.input)], target=target, choices=sample.choices,
    )  # fmt: skip

    async def generate(state: TaskState, *_: Any, **__: Any) -> TaskState:
        state.output = ModelOutput.from_content("scripted/model", reply)
        state.messages.append(state.output.message)
        return state

    state = await task.solver(state, generate)
    score = await task.scorer[0](state, target)
    return float(value_to_float()(score.value))


async def main(path: str, name: str) -> None:
    """Answer until the input ends."""
    task = _load(path, name)
    samples = [
        {"input": one.input, "target": one.target, "choices": one.choices} for one in task.dataset
    ]
    print(json.dumps(samples), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        score = await _score(task, asked["sample"], asked["reply"])
        print(json.dumps({"score": score}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
