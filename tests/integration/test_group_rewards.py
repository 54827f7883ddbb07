"""Rewards that a group's repeats are given together, through the whole mesh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.world import files as world

_ANSWERS = ["a", "bbb", "cc"]


def test_repeats_are_ranked(tmp_path: Path) -> None:
    question = {"input": [{"role": "user", "content": "say something long"}]}
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"task_id": "t", "responses_create_params": question}) + "\n")
    recording = tmp_path / "policy.jsonl"
    recording.write_text(
        "".join(
            json.dumps({"match": "*", "repeat": repeat, "answers": [{"text": text}]}) + "\n"
            for repeat, text in enumerate(_ANSWERS)
        )
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "models": {"policy": {"backend": "replay", "path": str(recording)}},
                "environments": {"rank": {"use": f"{world.HERE / 'ranking.py'}:Ranking"}},
                "defaults": {"environment": "rank"},
            }
        )
    )
    output = tmp_path / "rollouts.jsonl"
    command = [sys.executable, "-m", "gymmesh_cli", "collect", "-c", str(config), "-i", str(tasks)]
    done = subprocess.run(
        [*command, "-o", str(output), "-n", "3", "--json"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    rewards = {row["repeat_index"]: row["reward"] for row in rows}
    assert rewards == {0: 0.0, 1: 1.0, 2: 0.5}
