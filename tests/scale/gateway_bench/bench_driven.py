"""The benchmark's environment for verifiers: its program is played by the bench.

The `Harness` starts no program, as it allows; it tells the bench where its interception endpoint
is, and waits until the bench says that the program has ended.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import verifiers.v1 as vf


class DrivenTask(vf.Task):
    """Repair the lookup."""

    @vf.reward
    async def matches(self, trace: vf.Trace) -> float:
        """As the benchmark's environment of ours judges."""
        return float("lookup" in (trace.last_reply or ""))


class DrivenTaskset(vf.Taskset[DrivenTask]):
    """One task."""

    def load(self) -> list[DrivenTask]:
        return [DrivenTask(vf.TaskData(prompt="Repair the lookup."))]


class DrivenHarness(vf.Harness):
    """The bench plays its program."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
    ) -> Any:
        """Until the bench says that the program has ended."""
        host, _, port = os.environ["BENCH_DRIVER"].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        said = {"url": endpoint.rstrip("/").removesuffix("/v1"), "key": secret}
        writer.write(json.dumps(said).encode() + b"\n")
        await reader.read()
        writer.close()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["DrivenHarness", "DrivenTaskset"]
