"""The benchmark's agent: its program is played by the bench, which it tells where the model is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from gymmesh import Agent, Completion, RolloutContext


class DrivenAgent(Agent):
    """`options: {driver: HOST:PORT}`: where the driver listens."""

    version: ClassVar[str] = "1"
    runs_programs: ClassVar[bool] = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._host, _, self._port = str(options["driver"]).rpartition(":")

    async def run(self, context: RolloutContext) -> Completion:
        """Until the driver says that the program has ended."""
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            async with context.gateway() as gateway:
                said = {"url": gateway.url, "key": gateway.key}
                writer.write(json.dumps(said).encode() + b"\n")
                await reader.read()
            return Completion.program_exited()
        finally:
            writer.close()
