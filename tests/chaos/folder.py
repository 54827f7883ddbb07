"""What a run leaves for the judge, by name.

asked.json     what was asked for: see till_tasks.py
out/           the output: out.jsonl, its journal and so on
deaths/NN/     the output as a collector's end left it, in the order of sessions.json
acks.jsonl     attempts sent, ended and acknowledged: see launched.py
sessions.json  each collector: begun and ended (monotonic seconds), its exit code, how it was ended
               ("" by itself), and its last words
faults.json    what was done when (monotonic seconds)
after.json     gauges of sessions and rollouts once all was over
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROWS: Final = "out.jsonl"


class Folder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "out"
        self.deaths = path / "deaths"
        self.acks = path / "acks.jsonl"

    def make(self) -> Folder:
        """Make the folders."""
        for one in (self.path, self.out, self.deaths):
            one.mkdir(parents=True, exist_ok=True)
        return self

    def write(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        (self.path / name).write_text(json.dumps(value, indent=1) + "\n")

    def read(self, name: str) -> Any:
        """A JSON file's value."""
        return json.loads((self.path / name).read_text())

    def death(self, number: int) -> Path:
        """The copy that was made at a collector's end."""
        return self.deaths / f"{number:02d}"

    def acknowledged(self) -> Iterator[dict[str, Any]]:
        """What collectors did; a line that is not whole is the last, and skipped."""
        if self.acks.exists():
            for line in self.acks.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    yield json.loads(line)


def lane_file(out: Path, story_info: dict[str, Any], lane: int, shard: int) -> Path:
    """The file that a place in a journal names."""
    if lane == 1:
        return out / "out.failures.jsonl"
    packed = ".zst" if story_info.get("zstd") else ""
    if story_info.get("shard_rows"):
        return out / f"out-{shard:05d}.jsonl{packed}"
    return out / f"out.jsonl{packed}"
