"""Evaluations by verifiers' own runner, in its interpreter; prints what it scored, a line each.

python own_run.py '[{"env": {…}, "url": "http://…/v1", "output": "FOLDER"}, …]'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig


async def scored(given: dict[str, Any]) -> list[dict[str, Any]]:
    config = EvalConfig.model_validate(
        {
            "env": given["env"],
            "model": "policy",
            "client": {"base_url": given["url"], "api_key_var": "POLICY_API_KEY"},
            "output_dir": given["output"],
            "push": False,
            "rich": None,
            "max_concurrent": 8,
        }
    )
    return [
        {
            "index": trace.task.data.idx,
            "name": trace.task.data.name,
            "ok": episode.ok,
            "errors": [error.message for error in (*episode.errors, *trace.errors)],
            "reward": trace.reward,
            "rewards": {name: reward.score for name, reward in trace.rewards.items() if reward},
            "metrics": trace.metrics,
            "stop_condition": trace.stop_condition,
        }
        for episode in await run_eval(config)
        for trace in episode.traces
    ]


async def main() -> None:
    os.environ["POLICY_API_KEY"] = "k"
    for given in json.loads(sys.argv[1]):
        try:
            print("SCORED " + json.dumps(await scored(given)))
        except Exception as error:
            print("SCORED " + json.dumps(f"{type(error).__name__}: {error}"))


asyncio.run(main())
