"""Rollouts with all that a format may lose: tools, reasoning, tokens, forks, odd arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.unit.data.rows import call, result, row, text, write_rows

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
            "required": ["left", "right"],
        },
    },
    {
        "type": "function",
        "name": "search",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
]
REASONING: Final = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "I add."}],
}


def tokens(prompt: list[int], sampled: list[int]) -> dict[str, Any]:
    """The tokens of a model call, as its last item has them."""
    logprobs = [-0.25 * (place + 1) for place in range(len(sampled))]
    return {
        "prompt_token_ids": prompt,
        "generation_token_ids": sampled,
        "generation_log_probs": logprobs,
    }


def rows(tasks: int = 4, repeats: int = 2) -> list[dict[str, Any]]:
    """For each task a rollout that calls a tool and is right, and others that are wrong."""
    found = []
    for task in range(tasks):
        base = [10 + task, 11, 12]
        asked = [*base, 20, 21, 30, 31]
        common: dict[str, Any] = {
            "task": f"sums/{task}",
            "prompt": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"What is {task} + 3?"},
            ],
            "params": {"tools": TOOLS},
            "expected_answer": str(task + 3),
            "tags": {"level": "easy"},
            "metadata": {
                "steps_taken": 2,
                "tools_used": ["add"],
                "weights_versions": [7],
                "timings": {"started_at": 1795276216.25, "duration_us": 1500},
            },
            "run_id": "run-1",
            "agent": "tool_loop",
            "verification": {
                "status": "VERIFIED",
                "reward": 1.0,
                "reason": "as expected",
                "components": [{"name": "exact", "value": 1.0}],
                "evidence": {"found": str(task + 3)},
            },
        }
        found.append(
            row(
                REASONING,
                call("add", f'{{"left": {task}, "right": 3}}', "c1", **tokens(base, [20, 21])),
                result("c1", str(task + 3)),
                text(f"It is {task + 3}.", **tokens(asked, [40, 41, 2])),
                reward=1.0,
                **common,
            )
        )
        found += [
            row(
                call("search", '{"query": ', "c1", **tokens(base, [50 + repeat])),
                result("c1", "no JSON"),
                text(f"I don't know ({repeat}).", **tokens([*base, 60], [61, 2])),
                reward=0.0,
                repeat=repeat,
                **common,
            )
            for repeat in range(1, repeats)
        ]
    for one in found:
        one["response"] |= {
            "model": "policy",
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }
    return found


def rollout_file(folder: Path, tasks: int = 4, repeats: int = 2) -> Path:
    """A file of these."""
    return write_rows(folder / "rollouts.jsonl", rows(tasks, repeats))
