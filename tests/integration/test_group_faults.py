"""A group whose verifier fails: the run says how many rollouts have no verdict, and why."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.support import endpoint as fake
from tests.support.cli import gym, rows_of, sums, write_tasks
from tests.support.endpoint import FakeEndpoint

VERIFIER = """
    import os

    from gymmesh import Environment, Member, Task, Verdict

    class Ranked(Environment[None]):
        verify_needs_session = False

        def verify_group(self, task: Task, members: list[Member]) -> list[Verdict]:
            if os.environ.get("BROKEN") == "raises" and task.require("expected_answer") != "2":
                raise ValueError("no rank for these")
            kept = members[1:] if os.environ.get("BROKEN") else members
            return [Verdict(0.5) for _ in kept]
"""


async def test_a_failing_group_verifier_is_said_and_the_rows_can_be_judged_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "ranked.py").write_text(textwrap.dedent(VERIFIER))
    write_tasks(tmp_path, sums(3))
    use = ["--set", "environments.math.use=ranked.py:Ranked"]
    async with FakeEndpoint(default=lambda seen: fake.text("2")) as endpoint:
        policy = ["--model-url", endpoint.url, "--model", "fake"]
        done = await gym("collect", "-i", "tasks.jsonl", "-o", "rollouts.jsonl", "-n", "3", "-q",
                         *policy, *use, cwd=tmp_path, env={"BROKEN": "raises"})  # fmt: skip

    assert done.code == 3, done.err
    assert "9 completed, 0 failed" in done.out
    assert "unjudged      9 PENDING" in done.out
    assert "group faults  6 rollouts without a verdict: " in done.out
    assert "no rank for these" in done.out
    assert "group faults  3 rollouts without a verdict: " in done.out
    assert "judge again   correct the verifier, then use gym-cli reverify" in done.out
    rows = rows_of(tmp_path / "rollouts.jsonl")
    assert all("the group could not be scored" in row["verification"]["reason"] for row in rows)

    again = await gym("reverify", "rollouts.jsonl", "-o", "new.jsonl", *use, cwd=tmp_path)
    assert again.code == 0, again.err
    assert {row["reward"] for row in rows_of(tmp_path / "new.jsonl")} == {0.5}
