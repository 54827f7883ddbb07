"""A tracker's process that fails, hangs or is not there harms no run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gymmesh_data.track import TrackerLink, TrackerRun

RUN = TrackerRun("project", "run-1", "run-1", {"a": 1})
# Tells what it was told, in a file.
RECORDS = """
import json, sys
with open(sys.argv[1], "w") as out:
    for line in sys.stdin:
        out.write(line)
        said = json.loads(line)
        if said["do"] == "begin":
            print(json.dumps({"begun": {"id": "t-1", "url": "http://tracker/t-1"}}), flush=True)
        if said["do"] == "end":
            print(json.dumps({"ended": True}), flush=True)
"""
HANGS = "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
ENDS = "print('what is this')"
REFUSES = """
import json, sys
sys.stdin.readline()
print(json.dumps({"refused": "no key: sk-abcdefgh12345678"}), flush=True)
"""
FAILS = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"failed": "HTTP 500"}), flush=True)
print(json.dumps({"ended": True}), flush=True)
"""


def command(script: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script, *arguments)


class Linked:
    def __init__(self, *command: str) -> None:
        self.warnings: list[str] = []
        self.begun: list[dict[str, Any]] = []
        self.link = TrackerLink("wandb", self.warnings.append, command=command)

    async def begin(self) -> None:
        await self.link.begin(RUN, self.begun.append)

    async def end(self, seconds: float = 30.0, *, cut: bool = False) -> None:
        if cut:
            self.link.cut_short()
        await self.link.end({"a": 2}, finished=True, seconds=seconds)


async def test_all_arrives_in_its_order(tmp_path: Path) -> None:
    one = Linked(*command(RECORDS, str(tmp_path / "said")))
    await one.begin()
    one.link.measures(1, {"reward/mean": 0.5})
    one.link.table(1, ["a"], [["x"]])
    await one.end()
    said = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    assert [message.pop("do") for message in said] == ["begin", "measures", "table", "end"]
    assert said[0] == RUN.to_dict()
    assert said[1:3] == [
        {"step": 1, "values": {"reward/mean": 0.5}},
        {"step": 1, "columns": ["a"], "rows": [["x"]]},
    ]
    assert said[3] == {"config": {"a": 2}, "finished": True}
    assert one.begun == [{"id": "t-1", "url": "http://tracker/t-1"}]
    assert (one.warnings, one.link.lost) == ([], 0)


async def test_one_that_takes_nothing_is_ended_and_what_is_lost_counted() -> None:
    one = Linked(*command(HANGS))
    await one.begin()
    for step in range(400):
        one.link.table(step, ["a"], [["x" * 100_000]])
    assert one.link.lost > 300
    process = one.link._process
    assert process is not None
    await one.end(seconds=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert len(one.warnings) == 1
    assert "the run continues without the tracker" in one.warnings[0]


async def test_nobody_need_wait_for_the_end() -> None:
    one = Linked(*command(HANGS.partition(" signal.signal")[0] + " time.sleep(1000)"))
    await one.begin()
    await asyncio.wait_for(one.end(seconds=3600, cut=True), 60)
    assert len(one.warnings) == 1


@pytest.mark.parametrize(
    ("script", "word"),
    [(ENDS, "ended unexpectedly"), (REFUSES, "no key: ***"), (FAILS, "HTTP 500")],
)
async def test_what_goes_wrong_is_said_once(script: str, word: str) -> None:
    one = Linked(*command(script))
    await one.begin()
    assert one.link._reading is not None
    if script != FAILS:
        await asyncio.wait([one.link._reading])
    for step in range(5):
        one.link.measures(step, {"a": 1.0})
    await one.end()
    assert len(one.warnings) == 1
    assert word in one.warnings[0]
    assert one.link.lost >= 5


async def test_one_that_cannot_be_started() -> None:
    one = Linked("/nowhere/tracker")
    await one.begin()
    one.link.measures(1, {"a": 1.0})
    await one.end()
    assert one.link.lost == 1
    assert "can't start the tracker's process" in one.warnings[0]
