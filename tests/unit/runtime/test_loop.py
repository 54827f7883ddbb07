"""What `run` changes in its process, and that it takes it back; in processes of their own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from tests.support.optional import Require

_RUN = """
import gc
from gymmesh_runtime.serving.loop import run

async def main():
    print(gc.get_freeze_count() > 0, gc.get_threshold()[0])

"""


def said(script: str) -> tuple[list[str], str]:
    """The words that a script prints, and what its process writes to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN + script], capture_output=True, text=True, check=True
    )
    return done.stdout.split(), done.stderr


def test_the_garbage_collector_is_as_it_was_afterwards() -> None:
    after = "print(gc.get_freeze_count(), gc.get_threshold()[0])"
    script = f"gc.set_threshold(500)\nrun(main())\n{after}"
    assert said(script) == (["True", "100000", "0", "500"], "")


def test_it_is_as_it_was_after_a_failure() -> None:
    script = """
async def fails():
    raise KeyError
try:
    run(fails())
except KeyError:
    print(gc.get_freeze_count(), gc.isenabled())
"""
    assert said(script) == (["0", "True"], "")


def test_what_somebody_else_has_frozen_stays_frozen() -> None:
    script = "gc.freeze()\nrun(main())\nprint(gc.get_freeze_count() > 0)"
    assert said(script) == (["True", "100000", "True"], "")


def test_extension_modules_have_nothing_to_report_at_the_end(require: Require) -> None:
    found = importlib.util.find_spec("duckdb") is not None
    require(found, "duckdb", "pip install 'gymmesh[duckdb]'")
    words, errors = said("import duckdb\nrun(main())")
    assert words == ["True", "100000"]
    assert errors == ""


def test_a_task_that_catches_its_cancellation_is_left_behind_and_named() -> None:
    """An agent's or a tool's; the process stayed for ever, with all rollouts on disk."""
    script = """
import asyncio
from gymmesh_runtime.serving import loop

loop._CANCELLED_S = 0.1

async def stubborn():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def begins():
    begins.task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    return "ended"

print(run(begins()))
"""
    words, errors = said(script)
    assert words == ["ended"]
    assert "so the process no longer waits for this task: stubborn at <string>:" in errors
