"""What gym-cli reads and writes: nobody's file is lost, and a row that cannot run is said early."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import endpoint as fake
from tests.support.cli import Bench, Ended, gym, rows_of, solve, sums, write_tasks
from tests.support.endpoint import FakeEndpoint

PARAMS = "responses_create_params"


@pytest.fixture
async def endpoint() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint(default=solve) as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, endpoint: FakeEndpoint) -> Bench:
    return Bench(tmp_path, endpoint.url)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


async def refused(bench: Bench, *args: str | Path, code: int = 1) -> Ended:
    """The command changes no file and calls no model."""
    before = files_of(bench.tasks.parent)
    done = await gym(*args, cwd=bench.tasks.parent)
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert files_of(bench.tasks.parent) == before
    return done


@pytest.mark.parametrize("output", ["tasks.jsonl", "./tasks.jsonl", "linked.jsonl", "hard.jsonl"])
@pytest.mark.parametrize("flag", ["--overwrite", "--resume"])
async def test_the_task_file_is_no_output(
    bench: Bench, endpoint: FakeEndpoint, output: str, flag: str
) -> None:
    (bench.tasks.parent / "linked.jsonl").symlink_to(bench.tasks)
    os.link(bench.tasks, bench.tasks.parent / "hard.jsonl")
    done = await refused(bench, "collect", "-i", bench.tasks, "-o", output, flag, *bench.mesh)
    done.said("is an input of --input and would be overwritten")
    assert endpoint.requests == []


@pytest.mark.parametrize("command", [("collect", "-o", "rollouts.jsonl"), ("run",)])
async def test_tasks_from_a_pipe_are_refused(bench: Bench, command: tuple[str, ...]) -> None:
    """It was read once for its digest, and then said to hold no tasks."""
    reading, writing = os.pipe()
    os.write(writing, bench.tasks.read_bytes())
    os.close(writing)
    name, *more = command
    done = await gym(name, "-i", f"/proc/{os.getpid()}/fd/{reading}", *more, *bench.mesh)
    os.close(reading)
    assert done.code == 1
    done.said("is not a regular file, but the command reads the tasks several times")


async def test_a_retry_gives_up_only_what_the_command_asks_for(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    """A forgotten --num-repeats took the other repeats' outcomes out, and did not run them."""
    folder = bench.tasks.parent
    asked = ["collect", "-i", str(bench.tasks), "-o", "rollouts.jsonl", "-q", "--json", *bench.mesh]
    endpoint.default = fake.status(400)
    first = await gym(*asked, "-n", "3", "--limit", "2", cwd=folder)
    assert json.loads(first.out)["failed"] == 6, first.err
    endpoint.default = solve
    again = await gym(*asked, "--limit", "1", "--resume", "--retry", "failed", cwd=folder)
    figures = json.loads(again.out)
    assert (again.code, figures["requested"]) == (3, 6)
    assert (figures["completed"], figures["failed"], figures["not_finished"]) == (1, 5, 0)
    again.said("rollouts that match --retry but are outside --num-repeats and --limit: 5")
    assert len(rows_of(folder / "rollouts.failures.jsonl")) == 5
    unknown = await gym(*asked, "-n", "3", "--resume", "--retry", "task=none", cwd=folder)
    unknown.said("--retry task=none: ")
    unknown.said("has this id")
    assert unknown.code == 1
    rest = await gym(*asked, "-n", "3", "--limit", "2", "--resume", "--retry", "failed", cwd=folder)
    assert (rest.code, json.loads(rest.out)["completed"]) == (0, 6)


async def test_no_other_input_is_an_output(bench: Bench, endpoint: FakeEndpoint) -> None:
    folder = bench.tasks.parent
    (folder / "rollouts.failures.jsonl").write_bytes(bench.tasks.read_bytes())
    asked: list[str | Path] = ["collect", "-o", bench.output, "--overwrite", *bench.mesh]
    done = await refused(bench, *asked, "-i", "rollouts.failures.jsonl")
    done.said("rollouts.failures.jsonl", "is an input of --input")
    (folder / "rollouts.failures.jsonl").unlink()
    code = "from gymmesh_resource.environments.math import *\n"
    (folder / "rollouts.superseded.jsonl").write_text("defaults: {environment: math}\n")
    done = await refused(bench, *asked, "-i", bench.tasks, "--config", "rollouts.superseded.jsonl")
    done.said("is an input of --config")
    (folder / "rollouts.superseded.jsonl").unlink()
    (folder / "rollouts.trace").write_text(code)
    named = ["--set", 'environments.math.models={judge: "rollouts.trace:name"}']
    done = await gym(*asked, "-i", bench.tasks, *named, cwd=folder)
    assert done.code != 0
    assert (folder / "rollouts.trace").read_text() == code
    assert endpoint.requests == []


async def test_a_file_that_is_no_run_is_not_replaced(bench: Bench, endpoint: FakeEndpoint) -> None:
    bench.output.write_text('{"my": "data"}\n')
    done = await refused(bench, *bench.collect("--overwrite"))
    done.said("rollouts.jsonl is not a run's output, so the file is not replaced")
    assert endpoint.requests == []


async def test_folders_are_made_and_files_are_the_owner_s(bench: Bench, tmp_path: Path) -> None:
    output = tmp_path / "new" / "deep" / "rollouts.jsonl"
    done = await gym("collect", "-i", bench.tasks, "-o", output, *bench.mesh, "--trace")
    assert done.code == 0, done.err
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in output.parent.iterdir()}
    assert {
        f"rollouts.{end}" for end in ("jsonl", "journal", "index", "trace", "summary.json")
    } <= (set(modes))
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(output.parent.stat().st_mode) == 0o700


def bad_rows() -> list[dict[str, Any]]:
    one, two, three, four = sums(4)
    del two["expected_answer"]
    del three[PARAMS]
    return [one, two, three, four]


async def test_rows_that_would_fail_are_said_before_a_model_is_called(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    write_tasks(bench.tasks.parent, bad_rows())
    done = await refused(bench, *bench.collect())
    place = f"{bench.tasks}:2: expected_answer: is missing"
    done.said(place, f"{bench.tasks}:3: {PARAMS}: the key is missing", "--skip-invalid")
    assert endpoint.requests == []


async def test_wrong_rows_are_left_out_when_asked(bench: Bench) -> None:
    write_tasks(bench.tasks.parent, bad_rows())
    done = await gym(*bench.collect("--skip-invalid", "--order", "longest-first"))
    assert done.code == 3, done.err
    assert sorted(row["task_id"] for row in rows_of(bench.output)) == ["sum-0", "sum-3"]
    skipped = bench.output.with_name("rollouts.skipped.jsonl")
    summary = json.loads(done.out)
    kept = json.loads(bench.output.with_name("rollouts.summary.json").read_text())
    for figures in (summary, kept):
        assert (figures["skipped"], figures["skipped_output"]) == (2, str(skipped))
        assert (figures["requested"], figures["completed"]) == (2, 2)
    assert [(row["line"], row["key"]) for row in rows_of(skipped)] == [
        (2, "expected_answer"),
        (3, PARAMS),
    ]
    again = await gym(*bench.collect("--skip-invalid", "--resume"))
    assert again.code == 3
    told = await gym("collect", "-i", bench.tasks, "-o", bench.output, *bench.mesh,
                     "--skip-invalid", "--resume", "--quiet")  # fmt: skip
    assert "skipped       2 rows of the task file: " in told.out


async def test_rows_that_name_other_agents_are_said_once_or_refused(
    bench: Bench, endpoint: FakeEndpoint
) -> None:
    rows = sums(4)
    for row, name in zip(rows[1:], ("other_agent", "third_agent", "tool_loop"), strict=True):
        row["agent_ref"] = {"type": "responses_api_agents", "name": name}
    write_tasks(bench.tasks.parent, rows)
    done = await refused(bench, *bench.collect("--refuse-other-agents"))
    named = "agent_ref.name: names agent 'other_agent', but agent 'tool_loop' would run the row"
    done.said(f"{bench.tasks}:2: {named}", f"{bench.tasks}:3: ")
    assert endpoint.requests == []
    done = await gym(*bench.collect())
    assert done.code == 0, done.err
    named = "(and 1 more row): agent_ref names agent 'other_agent'"
    assert done.err.count(f"{bench.tasks}:2 {named}") == 1
    assert done.err.count("agent_ref") == 1
    assert len(rows_of(bench.output)) == 4


@pytest.mark.parametrize("content", ["", "\n\n", "nonsense\n", '{"a": 1}\n{"b": 2}\n{"c": 3}\n'])
@pytest.mark.parametrize("flags", [[], ["--skip-invalid"]])
async def test_nothing_of_nothing_is_no_success(
    bench: Bench, content: str, flags: list[str]
) -> None:
    bench.tasks.write_text(content)
    await refused(bench, *bench.collect(*flags))


async def test_nothing_completed_is_no_success(bench: Bench, endpoint: FakeEndpoint) -> None:
    endpoint.default = fake.status(400)
    done = await gym(*bench.collect())
    assert done.code == 1
    assert json.loads(done.out)["completed"] == 0


async def test_rows_of_the_field_are_collected(bench: Bench) -> None:
    row = sums(2)[1]
    rows: list[Any] = [{**row, "task_id": 5, "environment": {"a": 1}}, {**row, "task_id": 5}]
    write_tasks(bench.tasks.parent, rows)
    done = await refused(bench, *bench.collect())
    done.said(f"{bench.tasks}:2: task_id: line 1 already has the id '5'", "--number-repeated-ids")
    done = await gym(*bench.collect("--number-repeated-ids"))
    assert done.code == 0, done.err
    first, second = sorted(rows_of(bench.output), key=lambda row: str(row["task_id"]))
    assert [first["task_id"], second["task_id"]] == ["5", "5-2"]
    assert (first["environment"], first["task_extras"]) == (
        "math",
        {"task_id": 5, "environment": {"a": 1}},
    )


async def test_validate_asks_the_environments(bench: Bench, tmp_path: Path) -> None:
    write_tasks(tmp_path, bad_rows())
    config = tmp_path / "mesh.yaml"
    config.write_text("environments: {math: {use: math}}\n")
    alone = await gym("data", "validate", bench.tasks)
    assert (alone.code, alone.out.count("1 problem;")) == (1, 1)
    asked = await gym("data", "validate", "--config", config, bench.tasks)
    assert asked.code == 1
    assert f"{bench.tasks}:2: expected_answer: is missing" in asked.out
    assert f"{bench.tasks}: 2 problems; 2 tasks are valid" in asked.out
    (report,) = json.loads(
        (await gym("data", "validate", "--json", "--config", config, bench.tasks)).out
    )
    assert [(one["line"], one["key"]) for one in report["problems"]] == [
        (2, "expected_answer"),
        (3, PARAMS),
    ]
    write_tasks(tmp_path, sums(2))
    fine = await gym("data", "validate", "--config", config, bench.tasks)
    assert (fine.code, fine.out) == (0, f"{bench.tasks}: 2 tasks, all valid\n")
    examples = await gym("data", "validate", "--config", config)
    assert (examples.code, "examples of math: " in examples.out) == (0, True)
    (await gym("data", "validate")).said("--config")
    config.write_text("environments: {math: {use: maths}}\n")
    wrong = await gym("data", "validate", "--config", config, bench.tasks)
    assert wrong.code == 2
    wrong.said("There is no environment 'maths'")


@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
async def test_generate_replaces_nothing_but_tasks(tmp_path: Path, flags: list[str]) -> None:
    mine = tmp_path / "letter.txt"
    mine.write_text("Hello\n")
    generate = ["data", "generate", "reasoning-gym", "-d", "countdown", "--count", "1"]
    done = await gym(*generate, "-o", mine, *flags)
    assert done.code == 1
    done.said("letter.txt ")
    assert mine.read_text() == "Hello\n"


async def test_an_index_replaces_nothing_but_an_index(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# Page\n\nWords.\n")
    for output, words in ((page, "is an input of DOCS"), (tmp_path / "x", "is not an index")):
        (tmp_path / "x").write_text("mine")
        done = await gym("env", "index", page.parent, "--output", output)
        assert done.code == 1
        done.said(words)
    index = tmp_path / "index.db"
    for _ in range(2):
        assert (await gym("env", "index", page.parent, "--output", index)).code == 0
