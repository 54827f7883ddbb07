"""A run that is tracked: what the tracker gets, and what is kept for the next session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymmesh_client import Figures, OpenOptions, OutputFiles, RunIdentity, RunOutput, Tally
from gymmesh_client.run_file import TaskLines, read_run_file
from gymmesh_client.run_file.identity import MadeOf
from gymmesh_data.track import TrackerLink, Tracking
from tests.unit.data.rows import row, text
from tests.unit.data.track.test_link import RECORDS, command

CONFIGURATION = {"models": {"policy": {"api_key": "***", "model": "small"}}}


def output_in(folder: Path, *, resume: bool = False) -> RunOutput:
    tasks = folder / "tasks.jsonl"
    tasks.write_text("{}\n")
    made_of = MadeOf(tasks, TaskLines.of(tasks), CONFIGURATION)
    identity = RunIdentity("aa", "bb", made_of=made_of)
    files = OutputFiles(folder / "rollouts.jsonl")
    return RunOutput.open(files, identity, OpenOptions(resume=resume))


def figures(tally: Tally) -> Figures:
    return Figures(
        tally=tally, state="finished", why="", in_flight=0, queued=0, ending=0, retrying=0, width=4,
        concurrency=4, away={}, groups=0, held=False, rollouts_per_s=2.0, tokens_per_s=50.0,
    )  # fmt: skip


async def tracked(folder: Path, output: RunOutput, repeats: range) -> list[dict[str, Any]]:
    """What a tracker gets of a session that collects these repeats."""
    said, warnings = folder / "said", list[str]()
    link = TrackerLink("trackio", warnings.append, command=command(RECORDS, str(said)))
    tracking = Tracking(link, output, project="mine", samples=2)
    tally = Tally()
    async with tracking.live(lambda: figures(tally)):
        for repeat in repeats:
            one = row(text(f"It is {repeat}."), repeat=repeat, metadata={"weights_versions": [3]})
            tally.add_row(one)
            rollout = output.rollout_id("sum-1", repeat)
            await output.reserve(rollout, 1)
            await output.completed(rollout, 1, json.dumps(one).encode())
        await output.close(completed=len(repeats), failed=0, interrupted=False, why="")
    assert (warnings, tracking.lost) == ([], "")
    return [json.loads(line) for line in said.read_text().splitlines()]


async def test_a_run_from_its_begin_to_its_end(tmp_path: Path) -> None:
    output = output_in(tmp_path)
    begin, measures, table, end = await tracked(tmp_path, output, range(5))
    assert (begin["project"], begin["name"], begin["group"]) == ("mine", *2 * (output.run_id,))
    assert begin["id"] == ""
    assert begin["config"]["configuration"] == CONFIGURATION
    assert (measures["step"], measures["values"]["rollouts/completed"]) == (5, 5)
    assert measures["values"]["staleness/recent"] == 0
    assert len(table["rows"]) == 2
    assert (end["finished"], end["config"]["run_id"]) == (True, output.run_id)
    assert "trackers" not in end["config"]


async def test_who_goes_on_finds_the_trackers_run(tmp_path: Path) -> None:
    first = output_in(tmp_path)
    await tracked(tmp_path, first, range(2))
    known = read_run_file(first.files.run)["trackers"]
    assert known == {"trackio": {"id": "t-1", "url": "http://tracker/t-1", "project": "mine"}}
    second = output_in(tmp_path, resume=True)
    begin, *_ = await tracked(tmp_path, second, range(2, 4))
    assert begin["id"] == "t-1"
    assert read_run_file(second.files.run)["trackers"] == known


async def test_a_session_without_a_tracker_forgets_none(tmp_path: Path) -> None:
    first = output_in(tmp_path)
    await tracked(tmp_path, first, range(2))
    second = output_in(tmp_path, resume=True)
    await second.close(completed=2, failed=0, interrupted=False, why="")
    assert read_run_file(second.files.run)["trackers"]["trackio"]["id"] == "t-1"
