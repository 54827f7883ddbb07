"""The command that goes on with a run."""

from __future__ import annotations

import pytest

from gymmesh_cli.collect.collecting import exit_code
from gymmesh_cli.collect.resuming import resumed
from gymmesh_client import RunSummary, Tally


@pytest.mark.parametrize(
    ("arguments", "retry", "command"),
    [
        (["-i", "a b.jsonl", "-o", "o"], False, "-i 'a b.jsonl' -o o --resume"),
        (["-i", "t", "--overwrite"], True, "-i t --resume --retry failed"),
        (["--resume", "--retry", "task=a", "-i", "t"], True, "-i t --resume --retry failed"),
        (["--retry=failed", "--resume", "-i", "t"], False, "-i t --resume"),
        (["--retry-share", "0.5", "-i", "t"], False, "--retry-share 0.5 -i t --resume"),
        (["--set", "models.p.api_key=sk-1"], False, "--set 'models.p.api_key=***' --resume"),
        (["--set=models.p.api_key=sk-1"], False, "'--set=models.p.api_key=***' --resume"),
        (["--model-url", "http://a:b@h/v1"], False, "--model-url 'http://***@h/v1' --resume"),
        (["--set", "a.t.max_output_tokens=9"], False, "--set a.t.max_output_tokens=9 --resume"),
        (["--set", "models.p.api_key=${KEY}"], False, "--set 'models.p.api_key=${KEY}' --resume"),
        (["--set", "models.p.headers.X=abc"], False, "--set 'models.p.headers.X=***' --resume"),
    ],
)  # fmt: skip
def test_the_command_goes_on_with_the_same_run(
    arguments: list[str], retry: bool, command: str
) -> None:
    assert resumed(arguments, retry=retry) == f"gym-cli collect {command}"


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
        (summary(4, "the 1 s for the run are over"), 1),
        (summary(4, "the 1 s for the run are over", failed=2), 1),
        (summary(4, "the 1 s for the run are over", completed=2), 3),
        (summary(4, completed=2), 3),
    ],
    ids=["all", "some failed", "all failed", "none", "ended early, none", "ended early, failed",
         "ended early, some", "some without outcome"],
)  # fmt: skip
def test_no_run_without_a_completed_rollout_is_done(ended: RunSummary, code: int) -> None:
    assert exit_code(ended) == code
