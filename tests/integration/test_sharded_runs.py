"""One run by several collectors: each collects its shard, and `gym-cli runs merge` joins them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import endpoint as fake
from tests.support.cli import Bench, Ended, gym, rows_of, solve, sums, write_tasks
from tests.support.endpoint import FakeEndpoint, Seen

# Times; and what the endpoint made up, which counts its answers.
VARYING: Final = frozenset(
    (
        *("created_at", "started_at", "timings", "duration_us", "error_id", "id", "call_id"),
        "response_id",
        "model_calls",
    )
)
TASKS: Final = 7
SHARDS: Final = 3


def answer(seen: Seen) -> fake.Send:
    """Solves sums, but for the sixth, at which the endpoint fails."""
    if "What is 5 + 1?" in json.dumps(seen.body):
        return fake.status(400, message="no fives")
    return solve(seen)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with FakeEndpoint(default=answer) as endpoint:
        bench = Bench(tmp_path, endpoint.url)
        write_tasks(tmp_path, [row | {"seed": at} for at, row in enumerate(sums(TASKS))])
        yield bench


async def collect(bench: Bench, output: str, *more: str) -> Ended:
    asked = bench.collect("--run-id", "night-7", "--num-repeats", "2", "--concurrency", "1", *more)
    place = asked.index("-o") + 1
    asked[place] = bench.tasks.parent / output
    return await gym(*asked, cwd=bench.tasks.parent)


async def collect_shard(bench: Bench, index: int, *more: str) -> Ended:
    return await collect(bench, f"part-{index}.jsonl", "--shard", f"{index}/{SHARDS}", *more)


def settled(value: Any) -> Any:
    """A row without what varies."""
    if isinstance(value, dict):
        return {key: settled(one) for key, one in value.items() if key not in VARYING}
    return [settled(one) for one in value] if isinstance(value, list) else value


def kept(folder: Path, name: str) -> tuple[list[Any], list[Any]]:
    """Rows and failures, in their order."""
    both = (rows_of(folder / f"{name}.jsonl"), rows_of(folder / f"{name}.failures.jsonl"))
    return settled(both[0]), settled(both[1])


async def test_shards_are_collected_side_by_side_and_joined(bench: Bench) -> None:
    folder = bench.tasks.parent
    whole = await collect(bench, "whole.jsonl")
    assert whole.code == 3, whole.err  # done, with failures
    parts = await asyncio.gather(*(collect_shard(bench, index) for index in range(SHARDS)))
    assert [part.code for part in parts] == [0, 0, 3], [part.err for part in parts]
    shares = [json.loads(part.out)["requested"] for part in parts]
    assert shares == [6, 4, 4]

    names = [f"part-{index}.jsonl" for index in (1, 2, 0)]
    done = await gym("runs", "merge", "all.jsonl", *names, "--json", cwd=folder)
    assert done.code == 0, done.err
    for merged, wanted in zip(kept(folder, "all"), kept(folder, "whole"), strict=True):
        assert [one["rollout_id"] for one in merged] == [one["rollout_id"] for one in wanted]
        for row, other in zip(merged, wanted, strict=True):
            assert row == other
    assert {row["run_id"] for row in rows_of(folder / "all.jsonl")} == {"night-7"}
    summary, of_whole = json.loads(done.out), json.loads(whole.out)
    for key in ("run_id", "requested", "completed", "failed", "mean_reward", "pass_at", "causes"):
        assert summary[key] == of_whole[key], key
    about = json.loads((folder / "all.run.json").read_text())
    assert (about["state"], about["run_id"], about["shard"]) == ("finished", "night-7", None)
    assert [one["shard"] for one in about["sessions"]] == [[at, SHARDS] for at in range(SHARDS)]
    assert about["counts"]["completed"] == summary["completed"]
    assert about["configuration"]["models"]["policy"]["model"] == "fake"
    row = rows_of(folder / "all.jsonl")[3]
    shown = await gym("data", "show", "all.jsonl", "--rollout", row["rollout_id"], cwd=folder)
    assert json.loads(shown.out) == row

    # As any other run, the whole can be gone on with.
    again = await collect(bench, "all.jsonl", "--resume", "--retry", "failed")
    assert again.code == 3, again.err
    assert [row["attempt"] for row in rows_of(folder / "all.failures.jsonl")] == [2, 2]


async def test_a_merged_run_resumes_by_its_output_alone(bench: Bench) -> None:
    """With the arguments of its first shard, but for those of a shard."""
    folder = bench.tasks.parent
    laid_out = ("--zstd", "--shard-rows", "3")
    for index in range(SHARDS):
        assert (await collect_shard(bench, index, *laid_out)).code in (0, 3)
    names = [f"part-{index}.jsonl" for index in (2, 1, 0)]
    merged = await gym("runs", "merge", "all.jsonl", *names, cwd=folder)
    assert merged.code == 0, merged.err
    command = "gym-cli collect --resume --output all.jsonl --retry failed"
    assert f"retry         {command}" in merged.out.splitlines()
    done = await gym(*command.split()[1:], "--json", cwd=folder)
    assert (done.code, json.loads(done.out)["requested"]) == (3, 2 * TASKS), done.err
    assert [row["attempt"] for row in rows_of(folder / "all.failures.jsonl")] == [2, 2]
    assert len(rows_of(folder / "all.jsonl")) == 2 * (TASKS - 1)


async def test_a_shard_is_gone_on_with_as_itself_alone(bench: Bench) -> None:
    folder = bench.tasks.parent
    assert (await collect_shard(bench, 1, "--max-failures", "1")).code == 0
    before = (folder / "part-1.jsonl").read_bytes()
    for other in ("2/3", "1/4"):
        done = await collect(bench, "part-1.jsonl", "--shard", other, "--resume")
        assert done.code == 1
        done.said(f"is shard 1/3 of its run and can't be resumed as {other}")
    done = await collect(bench, "part-1.jsonl", "--resume")
    done.said("can't be resumed without --shard. Use --shard 1/3")
    bench.tasks.write_text(bench.tasks.read_text().replace("What", "what"))
    done = await collect_shard(bench, 1, "--resume")
    done.said("the tasks (line 1 (task 'sum-0') differs")
    done = await collect_shard(bench, 1, "--resume", "--accept-change", "tasks")
    assert done.code == 2
    done.said("Collect all shards again")
    assert (folder / "part-1.jsonl").read_bytes() == before


async def test_a_shard_without_a_task_is_done(bench: Bench) -> None:
    folder = bench.tasks.parent
    for index in range(3):
        shard = f"{index}/3"
        done = await collect(bench, f"two-{index}.jsonl", "--shard", shard, "--limit", "2")
        assert done.code == 0, done.err
    done = await gym(
        "runs", "merge", "two.jsonl", *(f"two-{one}.jsonl" for one in range(3)), cwd=folder
    )
    assert done.code == 0, done.err
    assert [row["task_id"] for row in rows_of(folder / "two.jsonl")] == ["sum-0"] * 2 + [
        "sum-1"
    ] * 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--shard", "0/2"], "Give each collector the same new --run-id"),
        (["--shard", "2/2", "--run-id", "a"], "'2/2': expected INDEX/COUNT"),
        (["--run-id", "../a"], "'../a' must start with a letter or digit"),
    ],
)
async def test_wrong_usage_is_said(bench: Bench, flags: list[str], says: str) -> None:
    done = await gym(*bench.collect(*flags), cwd=bench.tasks.parent)
    assert done.code == 2
    assert says in " ".join(done.err.split())
    assert not bench.output.exists()
