"""The other side as a process: a server that says where it listens, and a script with an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.endpoint import FakeEndpoint, Seen, answer, text

# Far more than it takes: other sides import much, on a busy machine.
BOUND_S: Final = 900.0


@dataclass(frozen=True)
class Listening:
    """A server of the other side. `url`: its root."""

    url: str
    process: Process


@asynccontextmanager
async def listening(
    python: Path, script: Path, *words: str, env: dict[str, str] | None = None
) -> AsyncIterator[Listening]:
    """A server whose script prints its URL once it listens."""
    process = await asyncio.create_subprocess_exec(
        python, "-u", script, *words, stdout=PIPE, env={**os.environ, **(env or {})}
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        assert line.startswith(b"http"), line
        yield Listening(line.decode().strip(), process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def said(python: Path, script: Path, *words: str, env: dict[str, str] | None = None) -> Any:
    """What a script prints as its last line, as JSON."""
    process = await asyncio.create_subprocess_exec(
        python, script, *words, stdout=PIPE, env={**os.environ, **(env or {})}
    )
    out, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 0, out.decode()
    return json.loads(out.decode().splitlines()[-1])


async def collected(
    folder: Path,
    environment: dict[str, Any],
    tasks: list[dict[str, Any]],
    decide: Callable[[list[Any]], tuple[str, dict[str, Any]] | str],
) -> list[dict[str, Any]]:
    """The rows of `gym-cli collect`, with a policy that sees what it was shown since its prompt.

    decide: what it was shown, as JSON where it is, to a tool with its arguments, or to a text.
    """
    from tests.support.cli import ended, start

    def reply(seen: Seen) -> Any:
        shown = [_json(one["content"]) for one in seen.body["messages"] if one["role"] in _SHOWN]
        chosen = decide(shown)
        if isinstance(chosen, str):
            return text(chosen)
        return answer(calls=[(f"call_{len(shown)}", chosen[0], json.dumps(chosen[1]))])

    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tasks))
    async with FakeEndpoint() as endpoint:
        endpoint.default = reply
        mesh = {
            "models": {"policy": {"backend": "chat", "url": endpoint.url, "model": "m"}},
            "environments": {"theirs": environment},
            "defaults": {"environment": "theirs"},
        }
        (folder / "mesh.yaml").write_text(json.dumps(mesh))
        process = await start(
            "collect", "--config", "mesh.yaml", "--input", "tasks.jsonl", "--output", "out.jsonl",
            cwd=folder,
        )  # fmt: skip
        finished = await ended(process)
    assert finished.code == 0, finished.err
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


_SHOWN: Final = ("user", "tool")


def _json(content: Any) -> Any:
    words = content if isinstance(content, str) else content[0]["text"]
    try:
        return json.loads(words)
    except ValueError:
        return words
