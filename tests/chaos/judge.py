"""The judge, a process of its own: python -m tests.chaos.judge FOLDER.

It reads what was asked for and the files that are left (folder.py), nothing else, and prints
{"violations": […], "completed": …, "failed": …} as JSON; it exits with 1 when there are violations.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.chaos.folder import Folder, lane_file
from tests.chaos.journal_file import FAILURES, ROWS, Outcome, Place, Story, read_story
from tests.chaos.rows_file import answer_of, as_row, key_of, read_lines, row_at
from tests.chaos.waits import late_attempts, unclean_sessions

Violation = str
_SHOWN: Final = 5


def judge(folder: Folder) -> dict[str, Any]:
    """All that is wrong with a run."""
    asked = folder.read("asked.json")
    story = story_of(folder.out)
    found = [f"journal: {one}" for one in story.faults]
    if not story.sessions:
        found.append("journal: the file is missing or empty")
        return {"violations": found, "completed": 0, "failed": 0}
    rows, unreadable = all_rows(folder.out, story)
    found += some("rows", unreadable)
    found += some("outcomes", outcomes(asked, rows))
    found += some("journal and rows", agreement(folder.out, story, rows))
    found += some("rewards", rewards(asked, rows))
    found += some("resume", resumed(folder, story))
    found += some("acknowledged", acknowledged(folder, story))
    found += some("waits", late_attempts(folder, asked["timeout_s"]))
    found += some("collectors", unclean_sessions(folder))
    found += some("left over", left_over(folder))
    return {
        "violations": found,
        "completed": len(rows[ROWS]),
        "failed": len(rows[FAILURES]),
        "boundaries": dict(Counter(str(row["failure"]["boundary"]) for row in rows[FAILURES])),
        "sessions": len(story.sessions),
    }


Rows = dict[int, list[dict[str, Any]]]


def story_of(out: Path) -> Story:
    """What an output's journal says."""
    path = out / "out.journal"
    return read_story(path.read_bytes() if path.exists() else b"")


def some(law: str, wrong: Iterable[str]) -> list[Violation]:
    """A law's violations: the first few, and how many more."""
    found = list(wrong)
    more = [f"{law}: and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [f"{law}: {one}" for one in found[:_SHOWN]] + more


def all_rows(out: Path, story: Story) -> tuple[Rows, list[str]]:
    """Every row in the files, whatever the journal says of it; and lines that are none."""
    info = story.sessions[-1]
    shards = {shard for lane, shard in story.sizes if lane == ROWS} | {0}
    paths = [lane_file(out, info, ROWS, shard) for shard in sorted(shards)]
    paths += sorted(set(out.glob("out-*.jsonl*")) - set(paths))
    rows: Rows = {ROWS: [], FAILURES: []}
    unreadable = []
    for lane, path in (*((ROWS, one) for one in paths), (FAILURES, lane_file(out, info, 1, 0))):
        for number, line in enumerate(read_lines(path), start=1):
            row = as_row(line)
            if row is None:
                unreadable.append(f"line {number} of {path.name} is not a row")
            else:
                rows[lane].append(row)
    return rows, unreadable


def outcomes(asked: dict[str, Any], rows: Rows) -> Iterable[str]:
    """Exactly one outcome for each rollout asked for, and for no other."""
    wanted = {(task, repeat) for task in asked["tasks"] for repeat in range(asked["repeats"])}
    both = (*rows[ROWS], *rows[FAILURES])
    counts = Counter((row["task_id"], row["repeat_index"]) for row in both)
    for one in sorted(wanted - counts.keys()):
        yield f"{one} has no outcome"
    for one in sorted(counts.keys() - wanted):
        yield f"{one} has an outcome, but was not requested"
    for one, count in sorted(counts.items()):
        if count > 1:
            yield f"{one} has {count} outcomes, expected 1"


def agreement(out: Path, story: Story, rows: Rows) -> Iterable[str]:
    """The journal names each row, where it is and how it is; and names no other."""
    by_key = {key_of(row): (lane, row) for lane in (ROWS, FAILURES) for row in rows[lane]}
    for key in by_key.keys() - story.current.keys():
        yield f"{by_key[key][1]['rollout_id']} has a row, but no outcome in the journal"
    for key, outcome in story.current.items():
        if key not in by_key:
            yield f"the rollout with the key {key.hex()} has an outcome in the journal, but no row"
            continue
        lane, row = by_key[key]
        said = (outcome.place.lane, outcome.attempt, outcome.status)
        if said != (lane, row["attempt"], lane + 1):
            names = "(file, attempt, status)"
            yield (
                f"{row['rollout_id']}: {names} is {said} in the journal, but the row has "
                f"{(lane, row['attempt'], lane + 1)}"
            )
        yield from _row_is_whole(out, story, outcome, row)
    if not story.ended:
        yield "the journal does not record the end of the run"


def _row_is_whole(out: Path, story: Story, outcome: Outcome, row: dict[str, Any]) -> Iterable[str]:
    place: Place = outcome.place
    line = row_at(lane_file(out, story.sessions[-1], place.lane, place.shard), place)
    if zlib.crc32(line) != place.crc:
        yield f"{row['rollout_id']}: the row's checksum differs from the checksum in the journal"
    elif as_row(line) != row:
        yield f"{row['rollout_id']}: the row is not at the position that the journal records"


def rewards(asked: dict[str, Any], rows: Rows) -> Iterable[str]:
    """Each reward is the known one, for the known words; a failure has none."""
    for row in rows[ROWS]:
        name, known = row["rollout_id"], asked["tasks"].get(row["task_id"])
        if known is None:
            continue  # said already
        if row["reward"] != known["reward"]:
            yield (
                f"{name} ({row['task_id']}): the reward is {row['reward']}, "
                f"expected {known['reward']}"
            )
        verdict = row["verification"]
        if verdict["status"] != "VERIFIED" or verdict["reward"] != known["reward"]:
            yield (
                f"{name}: the verification is {verdict['status']} with the reward "
                f"{verdict.get('reward')}, expected VERIFIED with {known['reward']}"
            )
        if answer_of(row) != known["text"]:
            yield (
                f"{name}: the answer of the completed rollout is {answer_of(row)!r}, "
                f"expected {known['text']!r}"
            )
        if row["stop_reason"] != "MODEL_FINISHED" or "failure" in row:
            yield (
                f"{name}: the stop reason is {row['stop_reason']}, expected MODEL_FINISHED "
                "without a failure"
            )
    for row in rows[FAILURES]:
        extra = {"verification", "stop_reason"} & row.keys()
        if row["reward"] is not None:
            extra.add("reward")
        if extra:
            yield f"{row['rollout_id']}: failed, but the row has {sorted(extra)}"
        failure = row["failure"]
        if not failure["boundary"] or not failure["status"]["reason"]:
            yield f"{row['rollout_id']}: the failure has no boundary or no reason"


def resumed(folder: Folder, last: Story) -> Iterable[str]:
    """What was finished when a collector ended is there to the byte, and is still current."""
    for path in sorted(folder.deaths.iterdir()):
        then = story_of(path)
        for key, outcome in then.current.items():
            if last.current.get(key) != outcome:
                yield (
                    f"end {path.name} of a collector: the outcome of the rollout with the key "
                    f"{key.hex()} changed later"
                )
        for (lane, shard), size in then.sizes.items():
            info = then.sessions[-1]
            was = lane_file(path, info, lane, shard).read_bytes()[:size]
            now_path = lane_file(folder.out, info, lane, shard)
            now = now_path.read_bytes()[:size] if now_path.exists() else b""
            if now != was or len(was) < size:
                yield (
                    f"end {path.name} of a collector: the first {size} bytes of {now_path.name} "
                    "changed later"
                )


def acknowledged(folder: Folder, last: Story) -> Iterable[str]:
    """What was acknowledged is on disk at the collector's end, and at the last."""
    deaths = [folder.death(number) for number in range(len(folder.read("sessions.json")))]
    ends = [
        (one["ended"], path, story_of(path))
        for one, path in zip(folder.read("sessions.json"), deaths, strict=True)
    ]
    for ack in folder.acknowledged():
        if ack["what"] != "stored":
            continue
        key = key_of({"rollout_id": ack["rollout"]})
        after = [(path, story) for ended, path, story in ends if ended >= ack["at"]][:1]
        for path, story in (*after, (folder.out, last)):
            if not _on_disk(path, story, key, ack["attempt"]):
                yield (
                    f"attempt {ack['attempt']} of {ack['rollout']} was acknowledged, "
                    "but is not on disk"
                )
                break


def _on_disk(out: Path, story: Story, key: bytes, attempt: int) -> bool:
    if not story.says(key, attempt):
        return False
    outcome = story.current.get(key)
    if outcome is None or outcome.attempt != attempt:
        return True  # it failed and was tried again
    place = outcome.place
    path = lane_file(out, story.sessions[-1], place.lane, place.shard)
    return path.exists() and path.stat().st_size >= place.offset + place.extent


def left_over(folder: Folder) -> Iterable[str]:
    """Nothing is open once all is over."""
    for gauge, value in folder.read("after.json").items():
        if value != 0:
            yield f"{gauge} is {value} after the run, expected 0"


def main() -> int:
    """Prints the verdict."""
    verdict = judge(Folder(Path(sys.argv[1])))
    print(json.dumps(verdict))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
