"""verifiers as a contender: python -m … URL DRIVER, by the Python of its own environment.

`bench_driven` finds the driver, which plays its program, in the variable BENCH_DRIVER.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.scale.rollout_bench.peer_verifiers import serve

if __name__ == "__main__":
    os.environ["BENCH_DRIVER"] = sys.argv[2]
    asyncio.run(serve(sys.argv[1], Path(__file__).with_name("bench_driven.py"), plays_alone=False))
