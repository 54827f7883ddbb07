"""Runs a taskset by verifiers' own evaluation, in verifiers' interpreter; prints what it scored.

python own_run.py '{"env": {…}, "url": "http://…/v1", "output": "FOLDER"}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

given = json.loads(sys.argv[1])
os.environ["POLICY_API_KEY"] = "k"
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
episodes = asyncio.run(run_eval(config))
scored = [
    {
        "index": trace.task.data.idx,
        "ok": episode.ok,
        "reward": trace.reward,
        "rewards": {name: reward.score for name, reward in trace.rewards.items() if reward},
        "metrics": trace.metrics,
        "stop_condition": trace.stop_condition,
    }
    for episode in episodes
    for trace in episode.traces
]
print("SCORED " + json.dumps(scored))
