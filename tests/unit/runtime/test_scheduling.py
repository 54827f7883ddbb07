"""How a process lets others finish their turn; each in its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has the policy")

_SAY = """
import os, subprocess, sys
from gymmesh_runtime.serving.loop import run
from gymmesh_runtime.serving.scheduling import batch_scheduling, normal_scheduling

def policies():
    mine = os.sched_getscheduler(0)
    say = "import os; print(os.sched_getscheduler(0))"
    child = subprocess.run([sys.executable, "-c", say], capture_output=True, check=True)
    return mine, int(child.stdout)
"""


def said(script: str) -> list[int]:
    """The numbers that a script prints after the usual beginning."""
    done = subprocess.run(
        [sys.executable, "-c", _SAY + script], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


def test_a_service_and_what_it_starts_wait_for_their_turn() -> None:
    script = "async def main(): print(*policies())\nrun(main())\nprint(*policies())"
    assert said(script) == [os.SCHED_BATCH] * 2 + [os.SCHED_OTHER] * 2


def test_what_drives_a_gpu_takes_the_usual_turns() -> None:
    script = """
with batch_scheduling():
    with normal_scheduling():
        print(*policies())
    print(*policies())
"""
    usual, waiting = [os.SCHED_OTHER] * 2, [os.SCHED_BATCH] * 2
    assert said(script) == usual + waiting


@pytest.mark.parametrize("policy", ["SCHED_IDLE", "SCHED_OTHER"])
def test_usual_turns_change_nothing_that_was_not_ours(policy: str) -> None:
    script = f"os.sched_setscheduler(0, os.{policy}, os.sched_param(0))\n"
    script += "with normal_scheduling(): print(*policies())\nprint(*policies())"
    assert said(script) == [getattr(os, policy)] * 4


def test_a_policy_set_from_outside_stays() -> None:
    script = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    script += "with batch_scheduling(): print(*policies())\nprint(*policies())"
    assert said(script) == [os.SCHED_IDLE] * 4


def test_where_none_may_be_set_all_stays_as_it_is() -> None:
    script = """
def refuse(*_):
    raise PermissionError
os.sched_setscheduler = refuse
with batch_scheduling():
    print(*policies())
"""
    assert said(script) == [os.SCHED_OTHER] * 2
