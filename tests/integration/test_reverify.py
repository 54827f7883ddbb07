"""gym-cli reverify and gym-cli show over a run that was collected with a fake endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import textwrap
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from tests.support import endpoint as fake
from tests.support.cli import BOUND_S, Ended, ended, gym, rows_of, start, sums, write_tasks
from tests.support.endpoint import FakeEndpoint, Seen

VERIFIER = """
    import asyncio, os
    from gymmesh import Environment, Member, Pending, Rollout, Session, Task, Verdict

    class Sums(Environment):
        version = os.environ.get("SUMS_VERSION", "1")
        verify_needs_session = False

        async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
            expected = rollout.task.require("expected_answer")
            if self.version == "2" and expected == "2":
                raise ValueError("no verdict on twos")
            while self.version == "slow" and expected != "1" and not os.path.exists("go"):
                await asyncio.sleep(0.05)
            right = rollout.answer == expected or self.version == "lenient"
            return Verdict(float(right), evidence={"seen": rollout.answer})

    class Ranked(Sums):
        async def verify(self, session: Session[None], rollout: Rollout) -> Pending:
            return Pending("with its group")

        async def verify_group(self, task: Task, members: list[Member]) -> list[Verdict]:
            answers = {member.rollout.answer for member in members}
            return [Verdict(1.0 / len(members), evidence={"apart": len(answers)}) for _ in members]

    class Live(Sums):
        verify_needs_session = True

    class LiveRanked(Ranked):
        verify_needs_session = True
"""
TASKS = 6


def odd(seen: Seen) -> fake.Send:
    """Right for the even sums."""
    number = int(seen.body["messages"][-1]["content"].split()[2])
    return fake.text(str(number + 1 if number % 2 == 0 else 0))


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with a finished run, whose endpoint is gone."""
    (tmp_path / "sums.py").write_text(textwrap.dedent(VERIFIER))
    write_tasks(tmp_path, sums(TASKS))
    async with FakeEndpoint(default=odd) as endpoint:
        policy = ["--model-url", endpoint.url, "--model", "fake"]
        done = await gym("collect", "-i", "tasks.jsonl", "-o", "rollouts.jsonl", "-n", "2", "-q",
                         *policy, *use("Sums"), cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    return tmp_path


def use(name: str) -> list[str]:
    return ["--set", f"environments.math.use=sums.py:{name}"]


async def reverify(folder: Path, *more: str, version: str = "1", name: str = "Sums") -> Ended:
    asked = ["reverify", "rollouts.jsonl", *more, *use(name)]
    return await gym(*asked, cwd=folder, env={"SUMS_VERSION": version})


def changed(done: Ended) -> dict[str, Any]:
    assert "Traceback" not in done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


async def test_verdicts_are_compared_and_kept_with_their_past(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    dry = changed(await reverify(folder, "--dry-run", "--json", version="lenient"))
    assert (dry["judged"], dry["changed"], dry["failed"]) == (12, 6, 0)
    assert dry["changes"] == {"0 -> 1": 6}
    assert dry["environments"]["math"]["mean_reward_before"] == 0.5
    assert {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()} == before

    done = await reverify(folder, "-o", "new.jsonl", version="lenient")
    assert done.code == 0, done.err
    assert "math             12     6        6   6     0       0        0.500     1.000" in done.out
    rows, old = rows_of(folder / "new.jsonl"), rows_of(folder / "rollouts.jsonl")
    assert {row["rollout_id"] for row in rows} == {row["rollout_id"] for row in old}
    was = {row["rollout_id"]: row["verification"] for row in old}
    for row in rows:
        verdict = row["verification"]
        assert row["reward"] == verdict["reward"] == 1.0
        assert verdict["version"] == "lenient"
        assert verdict["previous"] == [was[row["rollout_id"]]]
        assert verdict["reverified"]["environment_version"] == "lenient"
        assert verdict["reverified"]["by"].startswith("gym-cli reverify")
    # It is a run like any other, found by task; and can be judged once more, from what it says.
    shown = await gym("data", "show", "new.jsonl", "--task", "sum-1", "--repeat", "1", cwd=folder)
    assert json.loads(shown.out)["task_id"] == "sum-1"
    asked = ["reverify", "new.jsonl", "-o", "third.jsonl", "--json", *use("Sums")]
    assert changed(await gym(*asked, cwd=folder))["changes"] == {"1 -> 0": 6}
    assert all(len(one["verification"]["previous"]) == 2 for one in rows_of(folder / "third.jsonl"))


async def test_another_verifier_is_named_in_the_rows(folder: Path) -> None:
    (folder / "v2.py").write_text("def judge(session, rollout):\n    return 0.5\n")
    done = await reverify(folder, "--verifier", "v2.py", "-o", "half.jsonl")
    assert done.code == 0, done.err
    rows = rows_of(folder / "half.jsonl")
    for row in rows:
        assert row["verification"]["reverified"]["verifier"] == "v2.py:judge"
        assert len(row["verification"]["reverified"]["verifier_digest"]) == 64
        row["rollout_id"] += "x"  # of another run
    (folder / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = await gym("profile", "other.jsonl", "rollouts.jsonl", "--json", cwd=folder)
    found = {one["name"]: one["text"] for one in json.loads(done.out)["health"]}
    assert "12 of version 1, 12 of version 1+v2.py:judge@" in found["mixed_verdicts"]


async def test_what_cannot_be_judged_has_a_cause_and_no_reward(folder: Path) -> None:
    done = await reverify(folder, "-o", "new.jsonl", "--json", version="2")
    assert done.code == 3, done.err
    assert changed(done)["causes"] == {"VERIFIER_FAULT": 2}
    failures = rows_of(folder / "new.failures.jsonl")
    assert {row["task_id"] for row in failures} == {"sum-1"}
    for row in failures:
        assert row["reward"] is None
        assert "verification" not in row
        assert row["failure"]["boundary"] == "VERIFIER"
        assert row["failure"]["previous"][0]["reward"] == 0.0
    # `collect` can't run rollouts of this output again, so there is no command for them.
    twice = await gym("reverify", "new.jsonl", "--dry-run", "--json", *use("Sums"), cwd=folder)
    told = {"run": "new.jsonl", "boundary": "VERIFIER", "count": 2, "retry": None}
    assert changed(twice)["not_judged"] == [told]
    there = await reverify(folder, "-o", "new.jsonl", version="lenient")
    there.said("already exists, and was started with different environments", "with --overwrite")
    assert "--resume" not in there.err
    # Going on judges what failed, and nothing else; but not by another version of the verifier.
    refused = await reverify(folder, "-o", "new.jsonl", "--resume", version="lenient")
    refused.said("was started with different environments, or different options or versions of")
    again = await reverify(folder, "-o", "new.jsonl", "--resume", "--json", version="2")
    assert (again.code, changed(again)["kept_from_earlier"]) == (3, 10)


async def test_rollouts_that_failed_in_the_run_are_named(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(textwrap.dedent(VERIFIER))
    write_tasks(tmp_path, sums(TASKS))
    async with FakeEndpoint(default=odd) as endpoint:
        policy = ["--model-url", endpoint.url, "--model", "fake"]
        done = await gym("collect", "-i", "tasks.jsonl", "-o", "rollouts.jsonl", "-n", "2", "-q",
                         "--max-attempts", "1", *policy, *use("Sums"), cwd=tmp_path,
                         env={"SUMS_VERSION": "2"})  # fmt: skip
    assert done.code == 3, done.err
    again = "gym-cli collect --resume --output rollouts.jsonl --retry boundary=VERIFIER"
    accept = "--accept-change environments"
    judged = await reverify(tmp_path, "--dry-run")
    assert f"not judged    2 failed at VERIFIER; rerun with: {again} {accept}\n" in judged.out
    # A script that goes on after exit code 0 would train on the others alone.
    assert judged.code == 3, judged.err
    same = await reverify(tmp_path, "--dry-run", version="2")
    assert f"rerun with: {again}\n" in same.out
    limited = await reverify(tmp_path, "--dry-run", "--limit", "3")
    assert (limited.code, "not judged" in limited.out) == (0, False)
    document = changed(await reverify(tmp_path, "--dry-run", "--json"))
    told = {
        "run": "rollouts.jsonl",
        "boundary": "VERIFIER",
        "count": 2,
        "retry": f"{again} {accept}",
    }
    assert (document["judged"], document["not_judged"]) == (10, [told])
    asked = ["reverify", "rollouts.failures.jsonl", "--dry-run", *use("Sums")]
    alone = await gym(*asked, cwd=tmp_path)
    assert alone.code == 1
    assert "skipped       failed rollouts (the row of a failed rollout has no final" in alone.out
    assert f"not judged    2 failed at VERIFIER; rerun with: {again} {accept}\n" in alone.out
    # Another environment has none to judge, and none that failed.
    none = await reverify(tmp_path, "--dry-run", "--environment", "chess")
    none.said("no completed rollouts to score")
    assert "failed at" not in none.err


async def test_an_interruption_loses_nothing(folder: Path) -> None:
    asked = ["reverify", "rollouts.jsonl", "-o", "new.jsonl", "--concurrency", "1", "--json"]
    env = {"SUMS_VERSION": "slow"}
    process = await start(*asked, *use("Sums"), cwd=folder, env=env)
    async with asyncio.timeout(BOUND_S):
        while not rows_of(folder / "new.jsonl"):  # noqa: ASYNC110 (another process writes)
            await asyncio.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    (folder / "go").touch()  # the verdict under way ends
    done = await ended(process)
    assert done.code == 130, done.err
    judged = len(rows_of(folder / "new.jsonl"))
    assert 0 < judged < 12
    about = json.loads((folder / "new.run.json").read_text())
    assert (about["state"], about["counts"]["completed"]) == ("ended early", judged)
    again = await gym(*asked, "--resume", *use("Sums"), cwd=folder, env=env)
    assert again.code == 0, again.err
    assert changed(again)["kept_from_earlier"] == judged
    names = [row["rollout_id"] for row in rows_of(folder / "new.jsonl")]
    assert len(names) == len(set(names)) == 12


async def test_what_is_refused_before_anything_runs(folder: Path) -> None:
    live = await reverify(folder, "-o", "new.jsonl", name="Live")
    assert live.code == 1
    live.said("environment 'math' needs the live session", "can't be judged again")
    over = await reverify(folder, "-o", "rollouts.jsonl", "--overwrite")
    over.said("is an input of the reverification and would be overwritten")
    (folder / "foreign.jsonl").write_text(
        '{"responses_create_params": {"input": "?"}, "response": {"output": []}, "reward": 1}\n'
    )
    foreign = await gym("reverify", "foreign.jsonl", "--dry-run", cwd=folder)
    foreign.said("foreign.jsonl:1: environment: is missing. Pass --env NAME")
    other = await gym("reverify", "foreign.jsonl", "--dry-run", "--env", "chess", cwd=folder)
    other.said("environment 'chess'")
    assert not (folder / "new.jsonl").exists()


@pytest.mark.parametrize("name", ["Ranked", "LiveRanked"])
async def test_repeats_are_judged_together_where_the_environment_does(
    folder: Path, name: str
) -> None:
    done = await reverify(folder, "-o", "new.jsonl", "--json", name=name)
    assert done.code == 0, done.err
    assert changed(done)["changes"] == {"1 -> 0.5": 6, "0 -> 0.5": 6}
    assert {row["apart"] for row in rows_of(folder / "new.jsonl")} == {1}


async def serving(*asked: str, cwd: Path) -> tuple[Process, str]:
    """A service that serves, and its address."""
    process = await start("serve", *asked, cwd=cwd)
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), BOUND_S)).decode()
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found, line
    return process, found[0]


async def test_resource_services_elsewhere_judge(folder: Path) -> None:
    registry, registered_at = await serving("discovery", cwd=folder)
    served, address = await serving(
        "environment", "math", *use("Sums"), "--discovery", registered_at, cwd=folder
    )
    asked = ["reverify", "rollouts.jsonl", "--dry-run", "--json", "--resource"]
    try:
        for resource in (address, f"discovery://{registered_at}"):
            done = await gym(*asked, resource, cwd=folder)
            assert done.code == 0, done.err
            assert (changed(done)["judged"], changed(done)["changed"]) == (12, 0)
    finally:
        for process in (served, registry):
            os.killpg(process.pid, signal.SIGTERM)
            await ended(process)
    gone = await gym(*asked, address, cwd=folder)
    gone.said(address)
    assert gone.code == 1


async def test_tasks_put_right(folder: Path) -> None:
    rows = sums(TASKS)
    for row in rows:
        row["expected_answer"] = "0"
    (folder / "right.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    done = await reverify(folder, "-o", "new.jsonl", "--tasks", "right.jsonl", "--json")
    assert done.code == 3, done.err
    found = changed(done)
    assert found["causes"] == {"TASK_INVALID": 2}  # the sixth is not in the file
    assert found["changes"] == {"1 -> 0": 6, "0 -> 1": 4}
    row = rows_of(folder / "new.jsonl")[0]
    assert row["verification"]["reverified"]["task"] == {"expected_answer": "0"}


async def test_a_rollout_is_shown_as_a_conversation(folder: Path) -> None:
    path = folder / "rollouts.jsonl"
    rows = rows_of(path)
    hostile = rows[0] | {"rollout_id": "ro-evil"}
    hostile["response"] = rows[0]["response"] | {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so\x1b[2J"}]},
            {
                "type": "function_call",
                "call_id": "c\x07",
                "name": "f\x1b]0;x\x07",
                "arguments": "{",
            },
            {
                "type": "function_call_output",
                "call_id": "c\x07",
                "output": "reward        1\n\x9b1m",
            },
            {"type": "message", "role": "assistant", "content": "word " * 60},
        ]
    }
    (folder / "evil.jsonl").write_text(json.dumps(hostile) + "\n")
    shown = await gym("show", "evil.jsonl", cwd=folder, env={"COLUMNS": "60"})
    assert shown.code == 0, shown.err
    assert not any(char in shown.out for char in "\x1b\x07\x9b")
    assert "│ so\\x1b[2J" in shown.out
    assert "│ reward        1" in shown.out  # a tool's text is not taken for the verdict
    assert all(len(line) <= 60 for line in shown.out.splitlines())
    best, worst = [await gym("show", path, flag, "--json") for flag in ("--best", "--worst")]
    assert json.loads(best.out)["reward"] == 1.0
    assert json.loads(worst.out)["reward"] == 0.0
    both = await gym("show", path, "--best", "--worst")
    assert (both.code, "with only one of" in both.err) == (2, True)
    repeats = await gym("show", path, "--task", "sum-2", "--json")
    assert [json.loads(line)["repeat_index"] for line in repeats.out.splitlines()] == [0, 1]
    one = await gym("show", path, "--rollout", rows[3]["rollout_id"])
    for word in (
        "user\n",
        "assistant\n",
        "evidence      seen",
        "stage         verify",
        "expected_",
    ):
        assert word in one.out
    missing = await gym("show", path, "--task", "nothing")
    assert (missing.code, missing.out) == (1, "")
    missing.said("there is no task 'nothing'")
