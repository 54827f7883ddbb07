"""How each language's `collect` program is called."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
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
_BOUND_S: Final = 180.0
_TIMES: Final = ("timings", "stages")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a program wrote: rows by task and repeat, and its summary."""

    code: int
    rows: dict[tuple[str, int], Any]
    failures: list[Any]
    summary: Mapping[str, Any]
    err: str


async def collect(
    language: str, agent: str, tasks: Path, folder: Path, *, repeats: int, bootstrap: str = ""
) -> Collected:
    """Run a language's program; `bootstrap` is the content of an xDS bootstrap file."""
    folder.mkdir()
    output, failures = folder / "rows.jsonl", folder / "failures.jsonl"
    env = dict(os.environ)
    if bootstrap:
        (folder / "bootstrap.json").write_text(bootstrap)
        env["GRPC_XDS_BOOTSTRAP"] = str(folder / "bootstrap.json")
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[language],
        *("--agent", agent, "--input", str(tasks), "--output", str(output)),
        *("--failures", str(failures), "--num-repeats", str(repeats), "--concurrency", "16"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _BOUND_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    lines = out.decode().splitlines()
    assert lines, f"{language} printed no summary:\n{err.decode()}"
    return Collected(
        code=process.returncode or 0,
        rows={(row["task_id"], row["repeat_index"]): row for row in _rows(output)},
        failures=list(_rows(failures)) if failures.exists() else [],
        summary=json.loads(lines[-1]),
        err=err.decode(),
    )


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def comparable(row: Any) -> Any:
    """A row without what differs from one run to the next: ids, times and durations."""
    left = {key: value for key, value in row.items() if key not in ("rollout_id", "run_id")}
    response = dict(left["response"])
    left["response"] = {key: response[key] for key in response if key not in ("id", "created_at")}
    for part in ("metadata", "verification"):
        if part in left:
            left[part] = {key: one for key, one in left[part].items() if key not in _TIMES}
    return left
