"""A process that does nothing but tick: python -m tests.scale.side_data_bench.idle FILE.

What other programs do to this machine is in its figures, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gymmesh_runtime.serving.loop import run
from tests.scale.side_data_bench.lag import LoopLag

if __name__ == "__main__":
    run(LoopLag(Path(sys.argv[1])).run())
