"""Sandboxes of bubblewrap by the client that environments use: python -m … embedded|service.

embedded: the service is in the caller's process, as an environment has it that is served alone.
service: it is a process of its own, `gym-cli serve sandbox`, called over gRPC.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.sandboxes import (
    SandboxClient,
    SandboxHandle,
    SandboxSpec,
    sandboxes_at,
    sandboxes_here,
)
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import talk
from tests.scale.sandbox_bench import work
from tests.support.served import serve

_PLACES = 1024


class OurSandboxes:
    """See Sandboxes."""

    def __init__(self, client: SandboxClient) -> None:
        self._client = client

    async def make(self) -> SandboxHandle:
        return await self._client.create(SandboxSpec())

    async def run(self, sandbox: SandboxHandle) -> None:
        result = await sandbox.exec([work.PROGRAM])
        if not result.ok:
            raise RuntimeError(f"{work.PROGRAM} ended with {result.exit_code}")

    async def end(self, sandbox: SandboxHandle) -> None:
        await sandbox.end()


async def main(how: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gymmesh-bench-")))
        config = {
            "sandboxes": {
                "boxes": {
                    "places": _PLACES,
                    "adapts": False,
                    "options": {"folder": str(folder / "store")},
                }
            }
        }
        opening: AbstractAsyncContextManager[SandboxClient]
        if how == "embedded":
            opening = sandboxes_here(msgspec.convert(config, MeshConfig))
        else:
            opening = sandboxes_at(await _served(config, folder, stack), "boxes")
        client = await stack.enter_async_context(opening)
        version = (await client.about()).backend_version
        await work.answer(say, {"version": version}, OurSandboxes(client))


async def _served(config: dict[str, Any], folder: Path, stack: AsyncExitStack) -> str:
    """Starts the service; its address."""
    file = folder / "mesh.json"
    file.write_text(json.dumps(config))
    served = await serve("sandbox", "boxes", "--config", file, log=folder / "log", fresh=True)
    stack.push_async_callback(served.goes_down, 60.0)
    return str(served.said["address"])


if __name__ == "__main__":
    run(main(sys.argv[1]))
