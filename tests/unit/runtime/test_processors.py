"""How many processors a process may use; in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import os
from gymmesh_runtime.serving.processors import usable_processors
print(usable_processors())
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
print(usable_processors())
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="macOS cannot say")
def test_processors_are_those_that_the_process_may_use() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(len(os.sched_getaffinity(0))), "1"]
