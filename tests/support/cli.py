"""gym-cli as a process, and what a collect with a fake endpoint needs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import endpoint as fake
from tests.support.endpoint import Seen
from tests.support.forked import fork

BOUND_S = 240.0
_SUMS = Path(__file__).with_name("sums.py")


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def said(self, *words: str) -> None:
        """It ended with a sentence that has these words, and with no traceback."""
        assert "Traceback" not in self.err, self.err
        for word in words:
            assert word in self.err, self.err


async def start(
    *args: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Process:
    """Starts gym-cli in a process group of its own, as a terminal does; `env` is added.

    fresh: by `python -m gymmesh_cli`, for who looks at the process from outside; else it is a fork
    of one that has imported gym-cli, unless `env` has what is read before.
    """
    words, environment = list(map(str, args)), {**os.environ, **(env or {})}
    if not fresh and (forked := await fork(words, cwd, environment)) is not None:
        return forked
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gymmesh_cli", *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, cwd=cwd,
        start_new_session=True, env=environment,
    )  # fmt: skip


async def ended(process: Process, bound_s: float = BOUND_S) -> Ended:
    try:
        out, err = await asyncio.wait_for(process.communicate(), bound_s)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def gym(
    *args: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> Ended:
    """Runs gym-cli to its end; see `start`."""
    return await ended(await start(*args, cwd=cwd, env=env, fresh=fresh))


def run(*args: str | Path, cwd: Path | None = None) -> Ended:
    """Runs gym-cli to its end, for a test that has no loop."""
    return asyncio.run(gym(*args, cwd=cwd))


def sums(count: int) -> list[dict[str, Any]]:
    return [
        {
            "task_id": f"sum-{number}",
            "responses_create_params": {
                "input": [{"role": "user", "content": f"What is {number} + 1?"}]
            },
            "expected_answer": str(number + 1),
        }
        for number in range(count)
    ]


def write_tasks(folder: Path, rows: Sequence[Any]) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes() if path.exists() else b""
    assert raw == b"" or raw.endswith(b"\n")
    return [json.loads(line) for line in raw.splitlines()]


def solve(seen: Seen) -> fake.Send:
    """Calls the calculator first; then gives its result, wrong for even sums."""
    messages = seen.body["messages"]
    if messages[-1]["role"] == "tool":
        result = int(messages[-1]["content"])
        return fake.text(str(result if result % 2 else result + 1))
    number = messages[-1]["content"].split()[2]
    return fake.answer(calls=[("call_1", "calculator", f'{{"expression": "{number} + 1"}}')])


class Bench:
    """A task file, an output, and the flags that lead to the endpoint and to `Sums`."""

    def __init__(self, folder: Path, url: str, tasks: int = 4) -> None:
        self.tasks = write_tasks(folder, sums(tasks))
        self.output = folder / "rollouts.jsonl"
        self.failures = folder / "rollouts.failures.jsonl"
        environment = ["--set", f"environments.math.use={_SUMS}:Sums"]
        policy = ["--model-url", url, "--model", "fake", "--set", "models.policy.max_retries=0"]
        self.mesh = [*policy, *environment]

    def collect(self, *more: str | Path) -> list[str | Path]:
        return ["collect", "-i", self.tasks, "-o", self.output, "--json", *self.mesh, *more]
