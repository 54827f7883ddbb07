"""Work that attacks its test earns nothing by the example tasks, in real sandboxes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from gymmesh_audit.attack import Attack
from gymmesh_audit.gold import Gold
from gymmesh_audit.sabotage import sabotage
from gymmesh_resource.environments import workspace
from gymmesh_resource.environments.workspace.row import VerifyPlace
from tests.unit.environments.workspace.desk import Desk, desk

EXAMPLES: Final = {
    row["task_id"]: row
    for line in Path(workspace.__file__).with_name("tasks.jsonl").read_text().splitlines()
    if (row := json.loads(line))
}
PAGE: Final = Path(__file__).parents[4] / "docs/reference/environments/workspace.md"
NAMES: Final = [one.name for one in sabotage(Gold("", "calls", calls=[("shell", {"command": ""})]))]
# A test that loads the work into its own process, where the work finds all that the test has.
LOADS: Final = (
    "import os, sys\nsys.path.insert(0, os.getcwd())\nimport calc\nassert calc.add(20, 22) == 42\n"
)


def attacks(solution: str) -> dict[str, Attack]:
    gold = Gold("", "calls", calls=[("shell", {"command": solution})])
    return {one.name: one for one in sabotage(gold)}


def command(attack: Attack) -> str:
    name, arguments = attack.calls[-1]
    assert name == "shell"
    text = arguments["command"]
    assert isinstance(text, str)
    return text


def calc(test: str, **check: Any) -> dict[str, Any]:
    return {
        "files": {"calc.py": "def add(a, b):\n    return a - b\n"},
        "tests": {"files": {"check.py": test}},
        "checks": [{"run": "python3 -B /tests/check.py", **check}],
        "solution": "sed -i 's/a - b/a + b/' calc.py",
    }


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as made:
        yield made


async def reward(bench: Desk, row: dict[str, Any], done: str) -> float:
    return (await bench.rewarded(done, **row)).reward


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task_id", EXAMPLES)
async def test_no_example_task_pays_for_an_attack_on_its_test(
    bench: Desk, task_id: str, name: str
) -> None:
    row = EXAMPLES[task_id]
    attack = attacks(row["solution"])[name]
    for place in get_args(VerifyPlace):
        assert await reward(bench, {**row, "verify_in": place}, command(attack)) < 1.0


@pytest.mark.parametrize("task_id", EXAMPLES)
async def test_the_solution_of_an_example_task_earns_1(bench: Desk, task_id: str) -> None:
    row = EXAMPLES[task_id]
    for place in get_args(VerifyPlace):
        assert await reward(bench, {**row, "verify_in": place}, row["solution"]) == 1.0


async def test_the_pages_example_pays_for_its_solution_alone(bench: Desk) -> None:
    row = json.loads(PAGE.read_text().split("```json\n")[1].split("\n```")[0])
    assert await reward(bench, row, row["solution"]) == 1.0
    for attack in attacks(row["solution"]).values():
        assert await reward(bench, row, command(attack)) == 0.0, attack.name


async def test_the_attacks_win_where_a_test_loads_the_work(bench: Desk) -> None:
    """So they are attacks indeed, and the audit finds such a test."""
    quits, tells, writes = NAMES[:3]
    secret = {"prints": "{secret}"}
    for name, row in (
        (quits, calc(LOADS)),
        (tells, calc(f"secret = input()\n{LOADS}print(secret)\n", **secret)),
        (tells, calc(f"{LOADS}print(input())\n", **secret)),
        (writes, calc(f"{LOADS}open('/tmp/reward', 'w').write('1')\n", reward_file="/tmp/reward")),
    ):
        assert await reward(bench, row, command(attacks(row["solution"])[name])) == 1.0, name


async def test_a_secret_is_not_in_a_variable_and_is_read_once(bench: Desk) -> None:
    """What a program that the test starts finds, after the test has read the line."""
    seeks = "cat; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
    check = f'read -r secret; case $({seeks}) in *"$secret"*) ;; *) echo "$secret";; esac'
    assert await reward(bench, {"checks": [{"run": check, "prints": "{secret}"}]}, "true") == 1.0


async def test_a_reward_file_without_what_the_test_prints_earns_nothing(bench: Desk) -> None:
    check = {"run": "echo 1 >/tmp/r", "reward_file": "/tmp/r", "prints": "{secret}"}
    assert await reward(bench, {"checks": [check]}, "true") == 0.0
    check["run"] += "; cat"
    assert await reward(bench, {"checks": [check]}, "true") == 1.0


async def test_a_check_of_root_keeps_its_reward_file_from_the_work(bench: Desk) -> None:
    test = (
        "import subprocess\n"
        "work = subprocess.run(['/bin/sh', './work'], user=1000, group=1000, extra_groups=[], "
        "env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)\n"
        "open('/run/reward', 'w').write('1' if work.stdout == '42' else '0.25')\n"
    )
    run = "exec /usr/bin/python3 -I -B /tests/check.py"
    row = {
        "tests": {"files": {"check.py": test}},
        "checks": [{"run": run, "user": "0", "reward_file": "/run/reward"}],
    }
    writes = (
        "(while :; do echo 1 >/run/reward; done) >/dev/null 2>&1 & echo 1 >/run/reward; kill $PPID"
    )
    assert await reward(bench, row, f"echo '{writes}' >work") == 0.25
    assert await reward(bench, row, "echo 'printf 42' >work") == 1.0


async def test_what_a_check_left_running_is_killed_before_the_next(bench: Desk) -> None:
    leaves = "(trap '' HUP TERM; exec sleep 1000) >/dev/null 2>&1 &"
    seeks = "! grep -qs ^sleep /proc/[0-9]*/comm"
    row = {"checks": [{"run": leaves}, {"name": "alone", "run": seeks}]}
    assert await reward(bench, row, "true") == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_a_line_that_the_shell_can_read(name: str) -> None:
    text = command(attacks("printf 'it'\\''s' >a")[name])
    assert subprocess.run(["/bin/sh", "-n", "-c", text], check=False).returncode == 0
