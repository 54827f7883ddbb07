"""The outputs of shards, joined: what a run without shards has, in its order, or one sentence."""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from collections.abc import Coroutine, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_client import (
    OpenOptions,
    OutputFiles,
    RetryChoice,
    RunIdentity,
    RunOutput,
    UserError,
    open_run,
)
from gymmesh_client.output.merge import merge
from gymmesh_client.tasks import Shard

pytestmark = pytest.mark.long

ONE = RunIdentity("t" * 64, "c" * 64, "1.0")
TOOL = 2


def row(name: str, task: int, repeat: int, attempt: int, size: int = 0) -> dict[str, Any]:
    """A row of the rollout, completed or failed, which only its task, repeat and attempt decide."""
    said = {"task_id": f"t-{task}", "repeat_index": repeat, "rollout_id": name, "attempt": attempt}
    said["padding"] = "x" * size
    if (task + repeat) % 5 == 1:
        failure = {"boundary": "TOOL", "status": {"reason": "TOOL_FAULT", "message": "no"}}
        return said | {"failure": failure}
    return said | {"reward": float((task + repeat) % 2), "stop_reason": "MODEL_FINISHED"}


async def collect(
    path: Path,
    shard: Shard | None,
    tasks: int,
    repeats: int,
    *,
    seed: int = 0,
    stop_after: int | None = None,
    size: int = 0,
    identity: RunIdentity = ONE,
    run_id: str = "night",
    **more: Any,
) -> None:
    """Collect what is missing of a shard, or of all; outcomes come in an order of their own.

    Args:
        stop_after: so many outcomes, then it is interrupted.
        more: for `OpenOptions`, and `shard_rows` and `zstd` for the files.
    """
    files = OutputFiles(path, more.pop("shard_rows", None), more.pop("zstd", False))
    about: dict[str, Any] = {"overwrite": False, "resume": files.journal.exists()} | more
    about |= {"run_id": run_id, "shard": shard, "tasks": tasks, "repeats": repeats}
    output = RunOutput.open(files, identity, OpenOptions(**about))
    own = [task for task in range(tasks) if shard is None or shard.takes(task)]
    jobs = [
        (task, repeat)
        for task, repeat in product(own, range(repeats))
        if not output.has_outcome(f"t-{task}", repeat)
    ]
    numbered = output.reserving(iter(jobs), lambda job: output.rollout_id(f"t-{job[0]}", job[1]))
    wanted = [next(numbered) for _ in range(len(jobs) if stop_after is None else stop_after)]
    numbered.close()  # type: ignore[attr-defined]  # it is a generator
    random.Random(seed).shuffle(wanted)
    written: list[Coroutine[Any, Any, None]] = []
    for (task, repeat), attempt in wanted:
        name = output.rollout_id(f"t-{task}", repeat)
        said = row(name, task, repeat, attempt, size)
        line = json.dumps(said).encode()
        if "failure" in said:
            written.append(output.failed(name, attempt, TOOL, line))
        else:
            written.append(output.completed(name, attempt, line))
    await asyncio.gather(*written)
    await output.close(interrupted=stop_after is not None)


async def collect_all(folder: Path, of: int, tasks: int, repeats: int, **more: Any) -> list[Path]:
    """The outputs of all shards."""
    paths = [folder / f"part-{index}.jsonl" for index in range(of)]
    for index, path in enumerate(paths):
        await collect(path, Shard(index, of), tasks, repeats, seed=index, **more)
    return paths


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def expected(tasks: int, repeats: int, *, failed: bool) -> list[tuple[str, int]]:
    """Which rollouts completed, or failed, in the order of the input."""
    all_rows = (row("", *one, 1) for one in product(range(tasks), range(repeats)))
    return [
        (one["task_id"], one["repeat_index"]) for one in all_rows if ("failure" in one) == failed
    ]


@settings(deadline=None, max_examples=40)
@given(
    tasks=st.integers(1, 24),
    repeats=st.integers(1, 4),
    of=st.integers(1, 7),
    stop_after=st.none() | st.integers(0, 3),
    layout=st.sampled_from([{}, {"shard_rows": 3}, {"zstd": True}]),
    turn=st.randoms(use_true_random=False),
)
async def test_merged_shards_are_the_run_without_shards(
    tmp_path_factory: pytest.TempPathFactory,
    tasks: int,
    repeats: int,
    of: int,
    stop_after: int | None,
    layout: dict[str, Any],
    turn: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    whole, merged = folder / "whole.jsonl", folder / "merged.jsonl"
    await collect(whole, None, tasks, repeats)
    if stop_after is not None:
        share = Shard(0, of).share(tasks) * repeats
        first = folder / "part-0.jsonl"
        await collect(first, Shard(0, of), tasks, repeats, stop_after=min(stop_after, share))
    paths = await collect_all(folder, of, tasks, repeats)
    turn.shuffle(paths)
    summary = merge(paths, OutputFiles(merged, **layout))
    with open_run(whole) as one, open_run(merged) as other:
        # A run that was interrupted may have used up numbers of attempts.
        assert key(one.rows()) == key(other.rows())
        assert key(one.failures()) == key(other.failures())
        assert (one.run_id, one.completed, one.failed) == (
            other.run_id,
            other.completed,
            other.failed,
        )
        assert "shard" not in other.info
        order = [(said["task_id"], said["repeat_index"]) for said in other.rows()]
        assert order == expected(tasks, repeats, failed=False)
        order = [(said["task_id"], said["repeat_index"]) for said in other.failures()]
        assert order == expected(tasks, repeats, failed=True)
        assert (summary.tally.completed, summary.tally.failed) == (one.completed, one.failed)
        assert summary.not_finished == 0


async def test_a_shard_that_was_interrupted_keeps_its_order(tmp_path: Path) -> None:
    # More than are reserved ahead (512): what was reserved and not sent is reserved again.
    tasks, paths = 1400, [tmp_path / "part-0.jsonl", tmp_path / "part-1.jsonl"]
    await collect(paths[0], Shard(0, 2), tasks, 1, stop_after=40)
    for index, path in enumerate(paths):
        await collect(path, Shard(index, 2), tasks, 1, seed=index)
    merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    with open_run(tmp_path / "merged.jsonl") as run:
        order = [(said["task_id"], said["repeat_index"]) for said in run.rows()]
    assert order == expected(tasks, 1, failed=False)


def key(rows: Any) -> list[str]:
    return sorted(json.dumps({**one, "attempt": 0}, sort_keys=True) for one in rows)


async def test_rows_of_shards_that_were_not_interrupted_are_the_same_bytes(tmp_path: Path) -> None:
    await collect(tmp_path / "whole.jsonl", None, 20, 3)
    paths = await collect_all(tmp_path, 4, 20, 3)
    merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    for kind in (".jsonl", ".failures.jsonl"):
        merged = lines(tmp_path / f"merged{kind}")
        assert merged
        assert sorted(merged) == sorted(lines(tmp_path / f"whole{kind}"))


async def test_figures_are_those_of_the_whole(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 3, 12, 2)
    summary = merge(paths, OutputFiles(tmp_path / "merged.jsonl")).to_dict()
    assert summary == json.loads((tmp_path / "merged.summary.json").read_text())
    one_by_one = [merge_of_one(path, tmp_path) for path in paths]
    assert summary["requested"] == 24
    assert summary["completed"] == sum(len(rows) for rows in one_by_one)
    rewards = [one["reward"] for rows in one_by_one for one in rows]
    assert summary["mean_reward"] == sum(rewards) / len(rewards)
    # Of each task: n rollouts with a reward, c of which are solved.
    solved: dict[str, list[float]] = {}
    for said in (one for rows in one_by_one for one in rows):
        solved.setdefault(said["task_id"], []).append(said["reward"])
    chances = [sum(one) / len(one) for one in solved.values()]
    assert summary["pass_at"]["1"] == pytest.approx(sum(chances) / len(chances))


def merge_of_one(path: Path, folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(path)]


async def test_what_was_retried_is_merged_as_it_is_now(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 2, 10, 2)
    again: dict[str, Any] = {"resume": True, "retry": RetryChoice.parse(("failed",))}
    await collect(paths[1], Shard(1, 2), 10, 2, **again)
    merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    with open_run(tmp_path / "merged.jsonl") as run:
        attempts = {one["attempt"] for one in run.failures()}
        assert attempts == {1, 2}
        assert run.completed + run.failed == 20
    # The numbers that were used stay used when the whole is gone on with.
    files = OutputFiles(tmp_path / "merged.jsonl")
    retry = RetryChoice.parse(("failed",))
    output = RunOutput.open(files, ONE, OpenOptions(resume=True, repeats=2, retry=retry))
    missing = [one for one in product(range(10), range(2)) if not output.has_outcome(*name(one))]
    numbered = list(output.reserving(iter(missing), lambda one: output.rollout_id(*name(one))))
    assert {attempt for _, attempt in numbered} == {2, 3}
    await output.close()


def name(job: tuple[int, int]) -> tuple[str, int]:
    return f"t-{job[0]}", job[1]


OTHER = RunIdentity("u" * 64, "c" * 64, "1.0")


@pytest.mark.parametrize(
    ("shard", "changed", "says"),
    [
        (
            Shard(1, 3),
            {},
            r"part-1\.jsonl was collected with a different number of shards \(3\) than .*part-0",
        ),
        (Shard(0, 2), {}, r"part-1\.jsonl and .*part-0.*\.jsonl are both shard 0/2"),
        (Shard(1, 2), {"run_id": "day"}, r"with a different run \(day\) than .*part-0.*\(night\)"),
        (
            Shard(1, 2),
            {"identity": OTHER},
            r"with a different task file \(u{12}\) than .*\(t{12}\)",
        ),
        (
            Shard(1, 2),
            {"identity": RunIdentity("t" * 64, "d" * 64, "1.0")},
            "with a different configuration",
        ),
        (
            Shard(1, 2),
            {"identity": RunIdentity("t" * 64, "c" * 64, "2.0")},
            r"with a different version of gymmesh \(2\.0\)",
        ),
        (Shard(1, 2), {"repeats": 3}, r"with a different number of repeats \(3\) than .* \(2\)"),
        (Shard(1, 2), {"tasks": 9}, r"with a different number of tasks \(9\) than .* \(8\)"),
        (None, {}, "was collected without --shard"),
    ],
)
async def test_what_does_not_belong_together_is_not_merged(
    tmp_path: Path, shard: Shard | None, changed: dict[str, Any], says: str
) -> None:
    paths = [tmp_path / "part-0.jsonl", tmp_path / "part-1.jsonl"]
    await collect(paths[0], Shard(0, 2), 8, 2)
    about: dict[str, Any] = {"tasks": 8, "repeats": 2} | changed
    await collect(paths[1], shard, about.pop("tasks"), about.pop("repeats"), **about)
    await refused(paths, tmp_path, says)


async def refused(paths: Sequence[Path], folder: Path, says: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.suffix != ".index"}
    with pytest.raises(UserError, match=says) as caught:
        merge(paths, OutputFiles(folder / "merged.jsonl"))
    assert "\n" not in str(caught.value)
    after = {path: path.read_bytes() for path in folder.iterdir() if path.suffix != ".index"}
    assert after == before


async def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 4, 8, 1)
    says = "run night is incomplete: the output of shard 2/4 is missing"
    await refused([paths[3], paths[0], paths[1]], tmp_path, says)
    await refused([paths[3]], tmp_path, "the output of 3 shards 0/4, 1/4, 2/4 is missing")


async def test_a_shard_that_is_not_finished_is_named(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 2, 8, 1)
    unfinished = tmp_path / "unfinished.jsonl"
    await collect(unfinished, Shard(1, 2), 8, 1, stop_after=1)
    says = r"unfinished\.jsonl: some rollouts of shard 1/2 have no outcome \(3 of 4\)"
    await refused([paths[0], unfinished], tmp_path, says)
    await refused(
        [tmp_path / "nothing.jsonl"], tmp_path, "is in a folder without the run's journal"
    )


async def test_a_shard_that_is_being_collected_is_not_merged(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 2, 4, 1)
    files = OutputFiles(paths[1])
    output = RunOutput.open(
        files, ONE, OpenOptions(resume=True, shard=Shard(1, 2), tasks=4, repeats=1)
    )
    with pytest.raises(UserError, match="another collector is writing to this file"):
        merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    output.abandon()


async def test_no_shard_is_written_over(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 2, 4, 1)
    before = [path.read_bytes() for path in paths]
    with pytest.raises(UserError, match="is an input of runs merge and would be overwritten"):
        merge(paths, OutputFiles(paths[0]), overwrite=True)
    merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    with pytest.raises(UserError) as refused:
        merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    assert str(refused.value).endswith(
        "merged.jsonl already exists and is not empty. Replace the file with --overwrite, or "
        "choose another output"
    )
    merge(paths, OutputFiles(tmp_path / "merged.jsonl"), overwrite=True)
    assert [path.read_bytes() for path in paths] == before


async def test_a_damaged_row_leaves_no_output(tmp_path: Path) -> None:
    paths = await collect_all(tmp_path, 2, 40, 1)
    data = paths[1].read_bytes()
    place = len(data) // 2
    paths[1].write_bytes(data[:place] + b"~" + data[place + 1 :])
    with pytest.raises(UserError, match=r"part-1\.jsonl:\d+: the row was changed"):
        merge(paths, OutputFiles(tmp_path / "merged.jsonl"))
    assert not list(tmp_path.glob("merged*"))


async def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    peaks = []
    for tasks in (600, 2400):
        folder = tmp_path / str(tasks)
        folder.mkdir()
        paths = await collect_all(folder, 2, tasks, 1, size=4000)
        tracemalloc.start()
        merge(paths, OutputFiles(folder / "merged.jsonl"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The larger run's rows alone have 7 MB more.
    assert peaks[1] < peaks[0] + 2_000_000, peaks
