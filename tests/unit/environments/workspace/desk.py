"""Serves the environment with a real sandbox service over bubblewrap."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh.compose import open_here
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments.workspace import WorkspaceEnvironment
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.service import SandboxService
from tests.support.optional import require
from tests.unit.resource.served import Served, task

PROMPT = {"input": "Do it."}


class Desk(Served):
    """The environment and its sandbox service."""

    sandboxes: SandboxService

    async def rewarded(self, *commands: str, **row: Any) -> rollout_pb2.Verification:
        """The verdict on a session in which these commands were run."""
        of = task(**row)
        session = (await self.create(of)).session_id
        try:
            for command in commands:
                await self.call(session, "shell", {"command": command})
            return await self.verify(session, of)
        finally:
            await self.close(session)


def desk(place: Path, **options: Any) -> AbstractAsyncContextManager[Desk]:
    """The open environment; `options` are its own."""
    return desk_of(place, WorkspaceEnvironment(**options), "workspace")


@asynccontextmanager
async def desk_of(place: Path, environment: Environment[Any], use: str) -> AsyncIterator[Desk]:
    """An open environment of another kind that works in sandboxes."""
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    config = SandboxConfig(adapts=False, places=4, options={"folder": str(place / "sandboxes")})
    directory = PeerDirectory()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(directory.close)
        sandboxes = SandboxService(config, "sandbox", "sandbox-0")
        await open_here(sandboxes, directory, stack)
        settings = EnvironmentConfig(
            use=use,
            tool_timeout_s=30,
            verify_timeout_s=120,
            sandboxes={"sandbox": "sandbox"},
        )
        service = ResourceService(settings, "e", "e-0", environment=environment)
        await service.open(directory)
        stack.push_async_callback(service.close)
        made = Desk(service, directory)
        made.sandboxes = sandboxes
        yield made
