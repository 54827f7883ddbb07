"""Damages the files of a finished run, one at a time, and looks at what every reader makes of it.

`python -m tests.chaos.damage` (`make chaos-damage` calls it) does so 250 times. Nothing that was
changed may be believed, nothing may be lost, and no derived file may be in the way:

- Each reader says what it said of the whole run, or refuses with one sentence.
- Where only derived files are damaged, none refuses.
- A run that was resumed has every outcome once, with its reward. One whose resumption was refused
  has the bytes that it had, and `--retry damaged` resumes it where a row was changed.

A journal whose end is damaged has a torn tail, as a power cut leaves it: the outcomes in it run
again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from gymmesh_cli.main import cli
from gymmesh_client import OutputFiles, RetryChoice, UserError, open_run
from gymmesh_client.run_file.task_lines import TaskLines
from gymmesh_view import Filters, Sort, find_sources
from gymmesh_view.index.indexing import Indexer
from gymmesh_view.index.store import Store
from gymmesh_view.reading import Reading
from tests.fixtures.runs_of_0_1.make import Runs, failing_events, tool_events

Json = dict[str, Any]
Truth = dict[str, Json]
LAYOUTS: Final[Mapping[str, Json]] = {
    "plain": {},
    "zstd": {"zstd": True},
    "shards": {"shard_rows": 3},
    "zstd_shards": {"zstd": True, "shard_rows": 3},
}
# A file of rows of each, which is damaged.
_ROW_FILES: Final[Mapping[str, str]] = {
    "plain": ".jsonl",
    "zstd": ".jsonl.zst",
    "shards": "-00001.jsonl",
    "zstd_shards": "-00001.jsonl.zst",
}
KINDS: Final = ("flip", "cut", "zero", "empty", "gone")
_DERIVED: Final = (".index", ".run.json", ".summary.json", ".tasks", ".trace")
_OUTPUT: Final = "rollouts.jsonl"


@dataclass(frozen=True)
class Damage:
    """What is done to which file of a run.

    Attributes:
        place: where in the file, from 0 to 1.
    """

    layout: str
    suffix: str
    kind: str
    place: float

    @property
    def derived(self) -> bool:
        """Whether the file is derived from others."""
        return self.suffix in _DERIVED

    def inflict(self, path: Path) -> None:
        """Do it."""
        data = bytearray(path.read_bytes())
        at = int(self.place * len(data))
        if self.kind == "gone":
            path.unlink()
            return
        if self.kind == "flip":
            data[at] ^= 1 << at % 8
        elif self.kind == "cut":
            del data[at:]
        elif self.kind == "zero":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        else:
            data.clear()
        path.write_bytes(data)


def damages(seed: int, count: int) -> Iterator[Damage]:
    """So many, evenly over files, layouts and kinds."""
    dice = random.Random(seed)
    for number in range(count):
        layout = tuple(LAYOUTS)[number % len(LAYOUTS)]
        rows = _ROW_FILES[layout]
        suffixes = (".journal", rows, ".failures.jsonl", ".superseded.jsonl", *_DERIVED)
        suffix = suffixes[number // len(LAYOUTS) % len(suffixes)]
        # A bit that flips is what nobody notices by chance.
        kind = dice.choice(("flip", "flip", "flip", *KINDS))
        if kind == "gone" and suffix not in _DERIVED:
            kind = "flip"  # rows without a journal are a file, and a run without rows is refused
        yield Damage(layout, suffix, kind, dice.random())


@dataclass(frozen=True)
class Known:
    """A run's outcomes, and all that ever were, by rollout."""

    now: Truth
    ever: dict[str, list[Json]]

    @staticmethod
    def of(rows: Path) -> Known:
        """What a run has."""
        now = outcomes(rows)
        with open_run(rows) as run:
            lines = {name: [one.row for one in run.attempts(name) if one.row] for name in now}
        return Known(now, {name: [json.loads(one) for one in lines[name]] for name in now})


async def make_runs(folder: Path) -> dict[str, Known]:
    """A finished run of each layout, with failures, superseded rows and all files."""
    runs, found = Runs(folder), {}
    for name, layout in LAYOUTS.items():
        await runs.collect(name, failing_events, trace=True, **layout)
        await runs.retried_tasks(name, layout)
        files = OutputFiles(folder / name / _OUTPUT, **layout)
        files.summary.write_text('{\n  "run_id": "run-1",\n  "completed": 8\n}\n')
        TaskLines.of(folder / name / "tasks.jsonl").write(files.task_lines)
        found[name] = Known.of(files.rows)
    return found


def outcomes(rows: Path) -> Truth:
    """Every row of a run by its rollout. Raises UserError."""
    with open_run(rows) as run:
        return {one["rollout_id"]: one for one in (*run.rows(), *run.failures())}


def judge(damage: Damage, folder: Path, known: Known) -> list[str]:
    """Damage a copy of a run, which the folder is, and use it; what is wrong, a line each."""
    damage.inflict(folder / f"rollouts{damage.suffix}")
    found: list[str] = []
    truth = known.now

    def rows() -> None:
        nonlocal truth
        read = outcomes(Path(_OUTPUT))
        if damage.suffix == ".journal":  # it may have lost its last outcomes
            assert all(row in known.ever[name] for name, row in read.items()), "invented a row"
            truth = read
        same(read, truth)

    with chdir(folder):
        readers: Mapping[str, Callable[[], None]] = {
            "rows": rows,
            "get": lambda: _get(truth, refuses=not damage.derived),
            "view": lambda: _view(truth),
            "profile": lambda: _profile(truth),
            "export": lambda: _export(truth),
        }
        refused = False
        for name, read in readers.items():
            if refused and damage.suffix == ".journal":
                break  # the others have nothing to be compared with
            try:
                refused = _is_refused(read, allowed=not damage.derived)
            except Exception as error:
                found.append(f"{damage}: {name}: {type(error).__name__}: {str(error)[:300]}")
        try:
            _resume(damage, known)
        except Exception as error:
            found.append(f"{damage}: resume: {type(error).__name__}: {str(error)[:300]}")
    return found


def _is_refused(read: Callable[[], None], *, allowed: bool) -> bool:
    """Whether a reader refuses with a sentence. Raises what it raises where that is not allowed."""
    try:
        read()
    except UserError:
        if not allowed:
            raise
        return True
    return False


def same(found: Truth, truth: Truth) -> None:
    """Raise AssertionError where rows are not what they were."""
    lost, more = truth.keys() - found.keys(), found.keys() - truth.keys()
    assert not lost, f"rows are missing: {sorted(lost)}"
    assert not more, f"invented rows: {sorted(more)}"
    assert found == truth, "accepted a damaged row"


def _get(truth: Truth, *, refuses: bool) -> None:
    """`refuses`: whether a row may be refused."""
    with open_run(Path(_OUTPUT)) as run:
        for name, row in truth.items():
            try:
                found = run.get_rollout(name)
            except UserError:
                if not refuses:
                    raise
                continue  # of a row that was changed
            assert found == row, "accepted a damaged row"
    same(outcomes(Path(_OUTPUT)), truth)


def _view(truth: Truth) -> None:
    index = Path("view.sqlite").absolute()
    sources = find_sources([Path(_OUTPUT)]).sources
    indexer = Indexer(sources, index)
    indexer.prepare()
    store = Store(index)
    try:
        indexer.run_once()
        listed = store.listed(Filters(), Sort(), 0, 500)
        for one in listed:
            row = truth[one["rollout_id"]]
            assert one["reward"] == row.get("reward"), "accepted a damaged row"
            raw = Reading(store, sources).raw(one["key"])
            assert json.loads(raw) == row, "accepted a damaged row"
        missing = len(truth) - len(listed)
        assert len(store.progress()["problems"]) == missing, "skipped a row without a report"
    finally:
        indexer.stop()
        store.close()
        for path in Path().glob("view.*"):
            path.unlink()
    if missing:
        raise UserError("rows are missing")


def _profile(truth: Truth) -> None:
    said = json.loads(_said("profile", _OUTPUT, "--json", "--resamples", "0"))
    rewards = [row["reward"] for row in truth.values() if "failure" not in row]
    assert said["rollouts"]["completed"] == len(rewards)
    assert said["distributions"]["reward"]["mean"] == sum(rewards) / len(rewards)


def _export(truth: Truth) -> None:
    _said("export", _OUTPUT, "--format", "messages", "--output", "out.jsonl", "--overwrite")
    lines = [json.loads(line) for line in Path("out.jsonl").read_bytes().splitlines()]
    Path("out.jsonl").unlink()
    rewards = sorted(row["reward"] for row in truth.values() if "failure" not in row)
    assert sorted(line["reward"] for line in lines) == rewards


def _said(*words: str) -> str:
    """What a command says. Raises UserError where it refuses with a sentence."""
    ended = CliRunner().invoke(cli, words)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert "Traceback" not in ended.output, ended.output
    if ended.exit_code:
        raise UserError(ended.output)
    return ended.stdout


def _resume(damage: Damage, known: Known) -> None:
    before, kept = _bytes(), _kept(damage, known)
    runs = Runs(Path.cwd().parent)

    def resume(retry: RetryChoice | None = None) -> None:
        layout = LAYOUTS[damage.layout]
        asyncio.run(
            runs.collect(damage.layout, tool_events, resume=True, retry=retry, trace=True, **layout)
        )

    if _is_refused(resume, allowed=not damage.derived):
        for name, data in _bytes().items():
            # A torn tail of the journal, and rows that it does not name, are cut off.
            whole = before[name] == data
            assert whole or (damage.suffix == ".journal" and before[name].startswith(data)), name
        if damage.suffix == ".journal" or damage.kind not in ("flip", "zero"):
            return  # what is missing cannot be told from what was never there
        resume(RetryChoice(damaged=True))
    found = outcomes(Path(_OUTPUT))
    lost = known.now.keys() - found.keys()
    assert not lost, f"rows are missing: {sorted(lost)}"
    for name, row in found.items():
        # What a journal has lost runs again from its first attempt on.
        again = name not in kept or row["attempt"] > known.now[name]["attempt"]
        assert again or row in known.ever[name], "accepted a damaged row"
        assert "failure" not in known.now[name] or again or "failure" in row, "outcome changed"
        if "failure" not in row and "failure" not in known.now[name]:
            assert row["reward"] == known.now[name]["reward"], "reward changed"


def _kept(damage: Damage, known: Known) -> Set[str]:
    """The rollouts that need not run again: where the journal is damaged, those that it has."""
    if damage.suffix != ".journal":
        return known.now.keys()
    try:
        return outcomes(Path(_OUTPUT)).keys()
    except UserError:
        return frozenset()


def _bytes() -> dict[str, bytes]:
    """The run's own files."""
    kept = (".jsonl", ".zst", ".journal")  # of the run: not derived
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.suffix in kept}


def campaign(seed: int, count: int) -> list[str]:
    """Damage so many copies; what was wrong."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as there:
        base = Path(there, "base")
        truths = asyncio.run(make_runs(base))
        for number, damage in enumerate(damages(seed, count)):
            copy = Path(there, str(number), damage.layout)
            shutil.copytree(base / damage.layout, copy)
            found += judge(damage, copy, truths[damage.layout])
            shutil.rmtree(copy.parent)
    return found


def main() -> int:
    """Damage copies of a run; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="make chaos-damage",
        description="Damages files of finished runs, and checks what each reader reports.",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage (default: 0)")
    parser.add_argument(
        "--count", type=int, default=250, help="number of files to damage (default: 250)"
    )
    asked = parser.parse_args()
    found = campaign(asked.seed, asked.count)
    print(f"{asked.count} damaged files: {len(found)} violations")
    for line in found:
        print(f"  {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
