"""Small drills: ranks and collectors are killed, and each group is one living rank's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.drill import Plan, run
from tests.ranks.judge import Life, life_of, spread, violations

pytestmark = pytest.mark.long(seconds=60)
_TASKS = [f"sum-{number}" for number in range(4)]


@pytest.mark.parametrize(
    "plan",
    [
        # So few groups, of so different sizes, need not be even.
        Plan(13, groups=60, ranks=3, lease_s=1.0, within=1.0),
        Plan(12, groups=60, ranks=3, lease_s=1.0, within=1.0, kill="between"),
        Plan(13, groups=90, ranks=3, lease_s=1.0, within=1.0, kill="collector", concurrency=8),
    ],
    ids=["any", "between", "collector"],
)
async def test_each_group_is_one_living_ranks_whatever_is_killed(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMMESH_RUNTIME_DIR", str(tmp_path / "runtime"))
    result = await run(plan, tmp_path / "run")
    assert result.violations == [], result.line()
    assert sum(life.killed for life in result.lives) == (plan.kill != "collector")
    if plan.kill == "between":
        assert result.redelivered == 1


def _lived(rank: int, *lines: str, killed: bool = False) -> Life:
    return life_of(rank, [*lines, *([] if killed else ["end"])], killed=killed)


def _whole(task: str, tokens: int = 5) -> list[str]:
    return [f"{word} {task} {tokens}" for word in ("got", "acking", "acked")]


def test_the_judge_accepts_what_is_right() -> None:
    killed = _lived(0, *_whole("sum-0"), "got sum-1 5", "acking sum-1 5", killed=True)
    one = _lived(1, *_whole("sum-2"))
    assert violations([killed, one, _lived(2, *_whole("sum-3"))], _TASKS) == []
    # Its acknowledgement was lost with it, so another rank has the group.
    other = _lived(2, *_whole("sum-3"), *_whole("sum-1"))
    assert violations([killed, one, other], _TASKS, within=1.0) == []


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([_whole("sum-0"), [*_whole("sum-1"), *_whole("sum-2")]], "no rank acknowledged 1 groups"),
        ([_whole("sum-0") * 1, [*_whole("sum-0")]], "sum-0 was acknowledged 2 times"),
        ([_whole("sum-0"), ["got sum-0 5"]], "2 ranks that were not killed received sum-0"),
        ([[*_whole("sum-0"), *_whole("sum-0")]], "rank 0 received sum-0 twice"),
        ([_whole("sum-9")], "sum-9 is not a task of the run"),
        ([_whole("sum-0", 100), _whole("sum-1", 80)], "differ by 22.2% of"),
    ],
)
def test_the_judge_finds_what_is_wrong(ranks: list[list[str]], words: str) -> None:
    lives = [_lived(rank, *lines) for rank, lines in enumerate(ranks)]
    assert any(words in sentence for sentence in violations(lives, _TASKS))


def test_the_judge_misses_no_rank_that_did_not_end() -> None:
    assert "rank 0 did not reach the end of the run" in violations(
        [life_of(0, [], killed=False)], []
    )
    assert spread([_lived(0, *_whole("sum-0", 7))]) == 0.0
