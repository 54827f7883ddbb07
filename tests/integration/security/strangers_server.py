"""A server that knows its callers, as a program that prints its port.

python -m tests.integration.security.strangers_server SHA256
"""

from __future__ import annotations

import asyncio
import sys

from gymmesh_runtime.binding import Binding
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.config import IdentityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.wire.server import MeshServer
from tests.unit.runtime.probe import MODEL, Probe


async def main() -> None:
    known = IdentityConfig(token_sha256=sys.argv[1], may=("serve",))
    security = SecurityConfig(identities={"collector": known})
    server = MeshServer([Binding(MODEL, Probe())], credentials=Credentials(security))
    print(await server.start("127.0.0.1", 0), flush=True)
    await server.set_serving(True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
