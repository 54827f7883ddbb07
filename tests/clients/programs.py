"""How each language's `collect` program is called."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]
CLIENTS: Final = REPOSITORY / "clients"

#: As tools/test-clients.sh builds them.
COMMANDS: Final[Mapping[str, list[str]]] = {
    "go": [str(REPOSITORY / ".cache/clients/go/collect")],
    "typescript": ["node", str(CLIENTS / "typescript/.build/examples/collect/main.js")],
    "java": [str(CLIENTS / "java/bin/collect")],
    "rust": [str(CLIENTS / "rust/target/debug/examples/collect")],
}
_BOUND_S: Final = 240.0
_TIMES: Final = ("timings", "stages", "response_id")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a program wrote: the task and repeat of each row, rows by these, and its summary."""

    code: int
    keys: list[tuple[str, int]]
    rows: dict[tuple[str, int], Any]
    failures: list[Any]
    summary: Mapping[str, Any]
    err: str


class Collection:
    """A language's program that runs."""

    def __init__(self, language: str, process: Process, output: Path, failures: Path) -> None:
        self._language = language
        self._process = process
        self._output = output
        self._failures = failures
        # Read as it comes, so that the program never waits for a full pipe.
        self._said = asyncio.create_task(process.communicate())

    async def ended(self) -> Collected:
        """Waits for its end; raises TimeoutError."""
        out, err = await asyncio.wait_for(asyncio.shield(self._said), _BOUND_S)
        lines = out.decode().splitlines()
        assert lines, f"{self._language} printed no summary:\n{err.decode()}"
        rows = _rows(self._output)
        keys = [(row["task_id"], row["repeat_index"]) for row in rows]
        return Collected(
            code=self._process.returncode or 0,
            keys=keys,
            rows=dict(zip(keys, rows, strict=True)),
            failures=_rows(self._failures) if self._failures.exists() else [],
            summary=json.loads(lines[-1]),
            err=err.decode(),
        )

    async def close(self) -> None:
        """Kills it where it runs still."""
        if self._process.returncode is None:
            self._process.kill()
        await self._said


@asynccontextmanager
async def collecting(
    language: str,
    agent: str,
    tasks: Path,
    folder: Path,
    *,
    repeats: int = 1,
    concurrency: int = 16,
    bootstrap: str = "",
    more: Sequence[str] = (),
) -> AsyncIterator[Collection]:
    """Starts a language's program; `bootstrap` is the content of an xDS bootstrap file."""
    folder.mkdir()
    output, failures = folder / "rows.jsonl", folder / "failures.jsonl"
    env = dict(os.environ)
    if bootstrap:
        (folder / "bootstrap.json").write_text(bootstrap)
        env["GRPC_XDS_BOOTSTRAP"] = str(folder / "bootstrap.json")
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[language],
        *("--agent", agent, "--input", str(tasks), "--output", str(output)),
        *("--failures", str(failures), "--num-repeats", str(repeats)),
        *("--concurrency", str(concurrency), *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    collection = Collection(language, process, output, failures)
    try:
        yield collection
    finally:
        await collection.close()


async def collect(language: str, agent: str, tasks: Path, folder: Path, **how: Any) -> Collected:
    """Runs a language's program to its end; arguments are those of `collecting`."""
    async with collecting(language, agent, tasks, folder, **how) as collection:
        return await collection.ended()


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def comparable(row: Any) -> Any:
    """A row without what differs from one run to the next: ids, times and durations."""
    left = {key: value for key, value in row.items() if key not in ("rollout_id", "run_id")}
    response = dict(left["response"])
    left["response"] = {key: response[key] for key in response if key not in ("id", "created_at")}
    for part in ("metadata", "verification"):
        if part in left:
            left[part] = _timeless(left[part])
    for part in ("calls", "tool_calls"):
        left[part] = [_timeless(call) for call in left.get(part, ())]
    return left


def _timeless(part: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in part.items() if key not in _TIMES}
