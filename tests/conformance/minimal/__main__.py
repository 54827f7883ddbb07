"""`python -m tests.conformance.minimal resource|model|agent|discovery HOST:PORT [REGISTRY]`.

SIGTERM and SIGINT tell it to go down.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.echo import Echo
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.serving import Servicer, serving


async def _main(kind: str, address: str, registry: str = "") -> None:
    service: Servicer
    if kind == "resource":
        service = Capitals()
    elif kind == "model":
        service = Echo()
    elif kind == "discovery":
        service = Registry()
    else:
        service = MinimalAgent(registry)
    async with serving(service, address) as where:
        told = asyncio.Event()
        for one in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(one, told.set)
        print(where, flush=True)
        await told.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("resource", "model", "agent", "discovery"):
        sys.exit(__doc__)
    asyncio.run(_main(*sys.argv[1:]))
