"""Processes that are watched over end with the one that started them; others do not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymmesh_model.vllm.reaper import Reaper
from tests.support.fake_vllm import gone
from tests.support.optional import require

_SLEEP = [sys.executable, "-c", "import time; time.sleep(120)"]
_PARENT = f"""
import contextlib, subprocess, sys, time
from gymmesh_model.vllm.reaper import Reaper
reaper = Reaper()
reaper.start()
nested = "import subprocess; p = subprocess.Popen({_SLEEP!r}); print(p.pid, flush=True); p.wait()"
with MARKING:
    outer = subprocess.Popen([sys.executable, "-c", nested], stdout=subprocess.PIPE)
inner = outer.stdout.readline().decode().strip()
other = subprocess.Popen({_SLEEP!r}, stdout=subprocess.DEVNULL)
WATCH
print(outer.pid, inner, other.pid, flush=True)
END
"""


@pytest.fixture
def others() -> Iterator[list[int]]:
    """Processes to be ended with the test."""
    found: list[int] = []
    yield found
    for pid in found:
        subprocess.run(["kill", "-9", str(pid)], check=False)


async def _started(
    end: str, others: list[int], watch: str = "", marking: str = "reaper.marking()"
) -> tuple[asyncio.subprocess.Process, int, int]:
    require(Path("/proc/self/environ").exists(), "/proc", "run on Linux")
    code = _PARENT.replace("END", end).replace("WATCH", watch).replace("MARKING", marking)
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    outer, inner, other = (int(word) for word in (await parent.stdout.readline()).split())
    others.append(other)
    return parent, outer, inner


@pytest.mark.parametrize(
    ("marking", "watch"),
    [
        ("reaper.marking()", ""),
        ("reaper.marking()", "reaper.watch([outer.pid])"),
        # As one that has written over its environment: only its number tells.
        ("contextlib.nullcontext()", "reaper.watch([outer.pid])"),
    ],
)
async def test_a_killed_parent_takes_them_along(
    others: list[int], marking: str, watch: str
) -> None:
    parent, outer, inner = await _started("time.sleep(120)", others, watch, marking)
    parent.kill()
    await parent.wait()
    await gone(outer)
    await gone(inner)
    with pytest.raises(AssertionError, match="still there"):
        await gone(others[0], seconds=0.5)


async def test_a_process_of_the_machine_has_a_name_that_is_no_text(others: list[int]) -> None:
    code = (
        "import ctypes, time\n"
        "ctypes.CDLL(None).prctl(15, b'\\xff) Z', 0, 0, 0)\n"
        "print(flush=True)\n"
        "time.sleep(120)\n"
    )
    odd = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert odd.stdout is not None
    await odd.stdout.readline()
    parent, outer, inner = await _started(
        "time.sleep(120)", others, "reaper.watch([outer.pid])", "contextlib.nullcontext()"
    )
    parent.kill()
    await parent.wait()
    try:
        await gone(outer)
        await gone(inner)
    finally:
        odd.kill()
        await odd.wait()


async def test_a_parent_that_says_goodbye_leaves_them_alone(others: list[int]) -> None:
    parent, outer, inner = await _started("reaper.stop(); reaper.stop()", others)
    others += [outer, inner]
    assert await parent.wait() == 0
    for pid in (outer, inner):
        with pytest.raises(AssertionError, match="still there"):
            await gone(pid, seconds=0.5)


def test_stopping_what_was_not_started() -> None:
    Reaper().stop()
