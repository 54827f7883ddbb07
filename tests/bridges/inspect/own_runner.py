"""Inspect's own `eval` of tasks of the suite. Run in the interpreter that has inspect-ai:
`own_runner.py URL FOLDER TASK[=SCORE.KEY] …` prints rewards by task and sample as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["INSPECT_DISPLAY"] = "none"

from inspect_ai import eval as evaluate
from inspect_ai.model import get_model
from inspect_ai.scorer import value_to_float


def main() -> None:
    url, folder, *wanted = sys.argv[1:]
    model = get_model("openai-api/own/scripted", base_url=url, api_key="none")
    to_float = value_to_float()
    rewards: dict[str, dict[str, float]] = {}
    for one in wanted:
        name, _, key = one.partition("=")
        spec = f"{Path(__file__).parent}/suite.py@{name}"
        (log,) = evaluate(spec, model=model, log_dir=folder, max_connections=8)
        assert log.status == "success", log.error
        rewards[name] = {}
        for sample in log.samples or []:
            assert sample.scores, sample.error
            score, _, part = key.partition(".")
            value = sample.scores[score or next(iter(sample.scores))].value
            rewards[name][str(sample.id)] = to_float(value[part] if part else value)
    print(json.dumps(rewards))


main()
