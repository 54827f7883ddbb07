"""Runs of one taskset: by a mesh, and by verifiers' own evaluation."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import endpoint as fake
from tests.support.cli import Ended, ended, rows_of, start, write_tasks
from tests.support.endpoint import Seen

TASKSET: Final = Path(__file__).with_name("sums_taskset.py")
_OWN_RUN: Final = Path(__file__).with_name("own_run.py")
# verifiers is imported twice, which takes a busy machine minutes.
_RUN_S: Final = 1_500
START_S: Final = 900
ASK: Final = "And now the number."
SUBPROCESS: Final = {"agent": {"runtime": {"type": "subprocess"}}}


def scripted(seen: Seen) -> fake.Send:
    """A thought, then the right number, a wrong one, or many words: by the question alone."""
    texts = [message["content"] for message in seen.body["messages"] if message["role"] == "user"]
    number = int(re.findall(r"What is (\d+) ", texts[0])[0])
    if texts[-1] != ASK:
        return fake.text(f"I think of {number}.")
    return fake.text(("no idea", str(2 * number), str(2 * number + 1), "the sum")[number % 4])


def at_once(seen: Seen) -> fake.Send:
    """The number at once, a wrong one for every third task; by a shell, where there is one."""
    messages = seen.body["messages"]
    number = int(re.findall(r"What is (\d+) ", str(messages))[0])
    tools = [tool["function"]["name"] for tool in seen.body.get("tools") or ()]
    if "bash" in tools and messages[-1]["role"] != "tool":
        arguments = json.dumps({"command": f"echo $(({number} + {number}))"})
        return fake.answer(calls=[("call_1", "bash", arguments)])
    said = str(messages[-1]["content"]).strip() if "bash" in tools else str(2 * number)
    return fake.text(said if number % 3 else "no idea")


@dataclass(frozen=True)
class MeshRun:
    """What gym-cli collect left."""

    ended: Ended
    rows: Mapping[int, Mapping[str, Any]]
    failures: Mapping[int, Mapping[str, Any]]


async def collect(
    folder: Path,
    python: Path,
    url: str,
    *,
    taskset: Mapping[str, Any],
    env: Mapping[str, Any] = SUBPROCESS,
    options: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    agents: Mapping[str, Any] | None = None,
    concurrency: int = 8,
    environment: Mapping[str, Any] | None = None,
    played_by: Sequence[str] = (),
) -> MeshRun:
    """All tasks of the taskset once, one attempt each.

    played_by: names of agents: of the first tasks, each is played by the one in its place.
    """
    program = {"use": "program", "options": {"program": "environment", **(agent or {})}}
    config = {
        "models": {"policy": {"backend": "chat", "url": url, "max_retries": 0}},
        "environments": {
            "sums": {
                "use": "verifiers",
                "options": {
                    "python": str(python),
                    "start_timeout_s": START_S,
                    "taskset": {"id": str(TASKSET), **taskset},
                    "env": env,
                    **(options or {}),
                },
                **(environment or {}),
            }
        },
        "agents": agents or {"theirs": program},
        "defaults": {"environment": "sums", "agent": next(iter(agents or {"theirs": 0}))},
    }
    (folder / "mesh.json").write_text(json.dumps(config))
    chosen: list[str | Path] = []
    if played_by:
        rows = [
            {
                "task_id": f"sums-{number}",
                "prompt": "Go.",
                "verifiers": {"index": number},
                "agent": one,
            }
            for number, one in enumerate(played_by)
        ]
        chosen = ["--input", write_tasks(folder, rows)]
    output = folder / "rollouts.jsonl"
    process = await start(
        "collect", "--config", folder / "mesh.json", "--output", output, *chosen,
        "--concurrency", str(concurrency), "--max-attempts", "1", "--timeout", str(_RUN_S),
        "--quiet", cwd=folder,
    )  # fmt: skip
    done = await ended(process, _RUN_S)
    return MeshRun(
        done, _by_index(rows_of(output)), _by_index(rows_of(folder / "rollouts.failures.jsonl"))
    )


async def own_runs(python: Path, runs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What verifiers' own evaluation scored in each run, or the error that ended it.

    runs: `env`, `url` and `output` of each.
    """
    process = await asyncio.create_subprocess_exec(
        python, _OWN_RUN, json.dumps(runs), stdout=subprocess.PIPE, cwd=TASKSET.parent
    )
    try:
        out, _ = await process.communicate()
    finally:
        # Where the test was given up; by this signal it ends the tool servers that it started.
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0
    lines = [line for line in out.decode().splitlines() if line.startswith("SCORED ")]
    assert len(lines) == len(runs)
    return [json.loads(line.removeprefix("SCORED ")) for line in lines]


def _by_index(rows: list[dict[str, Any]]) -> dict[int, Mapping[str, Any]]:
    return {int(row["task_id"].rpartition("-")[2]): row for row in rows}
