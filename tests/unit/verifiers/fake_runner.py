"""Speaks as the runner of the environment `verifiers`, without verifiers: what it answers is told.

The variable RUNNER has the answers as JSON: `tasks`, and the results of `play` and `score`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

told = json.loads(os.environ["RUNNER"])


async def load(host: Any, params: dict[str, Any]) -> dict[str, Any]:
    if problem := told.get("problem"):
        raise ValueError(problem)
    return {"tasks": len(told["tasks"]), "id": "owner/sums"}


async def tasks(host: Any, params: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = told["tasks"][params["start"] :][: min(params["count"], 2)]
    return listed


async def play(host: Any, params: dict[str, Any]) -> Any:
    if params["index"] >= len(told["tasks"]):
        raise LookupError(f"the taskset has no task at index {params['index']}")
    if begun := told.get("hangs"):
        Path(begun).write_text("begun", encoding="utf-8")
        await asyncio.sleep(3600)
    if told.get("dies"):
        print(f"called with {params['api_key']}")
        os._exit(5)
    return told["result"]


async def score(host: Any, params: dict[str, Any]) -> Any:
    said = "".join(message["content"] or "" for message in params["messages"] if message["sampled"])
    told["result"]["traces"][0]["reward"] = float("4" in said)
    return told["result"]


METHODS = {"load": load, "tasks": tasks, "play": play, "score": score}
