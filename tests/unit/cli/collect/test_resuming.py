"""The command that goes on with a run."""

from __future__ import annotations

import pytest

from gymmesh_cli.collect.collecting import exit_code
from gymmesh_cli.collect.resuming import resume_command
from gymmesh_client import RunSummary, Tally


def test_the_command_names_the_output_alone() -> None:
    assert resume_command("a b.jsonl", 0, 0) == ""
    assert resume_command("a b.jsonl", 0, 2) == "gym-cli collect --resume --output 'a b.jsonl'"
    assert resume_command("o", 1, 0) == "gym-cli collect --resume --output o --retry failed"


def summary(requested: int, why: str = "", **counts: int) -> RunSummary:
    tally = Tally(completed=counts.get("completed", 0))
    tally.failures["MODEL"] = counts.get("failed", 0)
    return RunSummary(requested, 1.0, tally, {}, "o", "f", why=why)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (summary(4, completed=4), 0),
        (summary(4, completed=3, failed=1), 3),
        (summary(4, failed=4), 1),
        (summary(4), 1),
        (summary(4, "the run reached its deadline of 1 s"), 1),
        (summary(4, "the run reached its deadline of 1 s", failed=2), 1),
        (summary(4, "the run reached its deadline of 1 s", completed=2), 3),
        (summary(4, completed=2), 3),
    ],
    ids=["all", "some failed", "all failed", "none", "ended early, none", "ended early, failed",
         "ended early, some", "some without outcome"],
)  # fmt: skip
def test_no_run_without_a_completed_rollout_is_done(ended: RunSummary, code: int) -> None:
    assert exit_code(ended) == code
