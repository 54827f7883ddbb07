"""A process with a pool whose worker hangs; it is killed by the test that starts it."""

from __future__ import annotations

import asyncio
import sys

from gymmesh_resource.workers import ProcessPool
from tests.unit.math_environment import worker_functions

# No `if __name__ == "__main__"`: workers must not import this file again.


async def main() -> None:
    pool = ProcessPool(workers=1)
    function = getattr(worker_functions, sys.argv[1])
    await pool.run(worker_functions.write_process_id, sys.argv[2], timeout=60)
    await pool.run(function, timeout=60)


asyncio.run(main())
