"""That what was freed goes back to the system; in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import asyncio
from pathlib import Path
from gymmesh_runtime.serving import spare_memory

spare_memory._EVERY_S = 0.05
MIB = 2**20

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main():
    before = resident()
    # Too small for a mapping of their own; every fortieth is in use for as long as the process.
    blocks = [bytes(600 + number * 7919 % 60_000) for number in range(8000)]
    kept = blocks[::40]
    del blocks
    assert resident() - before > 150 * MIB, "the library gave it back by itself"
    returning = asyncio.create_task(spare_memory.give_back_spare_memory())
    while resident() - before > 50 * MIB:
        await asyncio.sleep(0.05)
    returning.cancel()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries have no such call")
def test_what_was_freed_below_a_block_in_use_goes_back() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True, timeout=300)
