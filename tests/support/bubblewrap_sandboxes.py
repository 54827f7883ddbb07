"""A sandbox of bubblewrap, of a service in this process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gymmesh_mesh.compose import open_here
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.service import SandboxService
from gymmesh_sandbox_access import SandboxClient, SandboxHandle, SandboxSpec
from tests.support.optional import require


@asynccontextmanager
async def bubblewrap_sandbox(place: Path, spec: SandboxSpec) -> AsyncIterator[SandboxHandle]:
    """A sandbox, whose files are kept below a folder."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    config = SandboxConfig(adapts=False, places=4, options={"folder": str(place / "sandboxes")})
    directory = PeerDirectory()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(directory.close)
        await open_here(SandboxService(config, "boxes", "boxes-0"), directory, stack)
        client = await stack.enter_async_context(SandboxClient(directory, "boxes"))
        yield await client.create(spec)
