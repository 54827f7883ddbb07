"""Rows as gym-cli collect writes them, as far as exports read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def text(said: str, **more: Any) -> Json:
    """An answer of the model in text."""
    part = {"type": "output_text", "text": said, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], **more}


def call(name: str, arguments: str, call_id: str, **more: Any) -> Json:
    """A tool call of the model."""
    item = {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}
    return item | more


def result(call_id: str, output: Any) -> Json:
    """What a tool returned."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def row(
    *output: Json,
    task: str = "sum-1",
    repeat: int = 0,
    reward: float | None = 1.0,
    prompt: Any = "What is 2 + 3?",
    params: Json | None = None,
    **more: Any,
) -> Json:
    """A completed rollout's row."""
    return {
        "responses_create_params": {"input": prompt} | (params or {}),
        "response": {"output": list(output)},
        "reward": reward,
        "task_id": task,
        "rollout_id": f"ro-{task}-{repeat}",
        "repeat_index": repeat,
        "environment": "sums",
        "stop_reason": "MODEL_FINISHED",
        **more,
    }


def write_rows(path: Path, rows: Sequence[Json]) -> Path:
    """A file of rows."""
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def read_records(path: Path) -> list[Json]:
    """The records of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
