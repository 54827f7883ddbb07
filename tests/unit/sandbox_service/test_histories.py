"""Random histories of a sandbox service: nothing is left over, nothing is double."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from tests.support.sandboxes import TIMEOUT, Box, ServedSandboxes, new_id, serve_sandboxes, until

_STEPS = 150
_PLACES = 8


class Scenario:
    """Callers that create, use, fork and end sandboxes, while some are lost and time passes."""

    def __init__(self, served: ServedSandboxes, seed: int) -> None:
        self.served = served
        self.random = random.Random(seed)
        self.boxes: list[Box] = []
        self.calls: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        for _ in range(_STEPS):
            act = self.random.choice(
                [self.create, self.create, self.use, self.use, self.fork, self.end, self.vanish]
            )
            call = asyncio.create_task(act())
            self.calls.add(call)
            call.add_done_callback(self.calls.discard)
            chance = self.random.random()
            if chance < 0.1:
                self.served.pass_time(self.random.choice([1, 10, 40]))
            elif chance < 0.2:
                self.fault(self.random.choice(["create", "write", "start", "snapshot"]))
            elif chance < 0.3:
                call.cancel()
            await asyncio.sleep(0)
            assert self.served.taken <= _PLACES

    def fault(self, step: str) -> None:
        faults = self.served.backend.faults.setdefault(step, [])
        if not faults:
            faults.append(OSError("broken"))

    async def create(self) -> None:
        with suppress(MeshError):
            files = [{"path": b"a", "content": b"x"}]
            ttl_s = self.random.choice([5, 30])
            self.boxes.append(await self.served.create(ttl_s=ttl_s, files=files))

    async def use(self) -> None:
        if self.boxes:
            with suppress(MeshError):
                heard = await self.random.choice(self.boxes).exec("cat", "a")
                # A program that was not run to its end is an error, and never an exit.
                assert (heard.stdout, heard.exit.exit_code) == (b"x", 0)

    async def fork(self) -> None:
        if self.boxes:
            source = self.random.choice(self.boxes)
            request = sandbox_pb2.ForkSandboxRequest(**source.own, request_id=new_id(), count=2)
            with suppress(MeshError):
                answer = await self.served.peer.ForkSandbox(request, timeout=TIMEOUT)
                self.boxes += [Box(self.served.peer, created) for created in answer.sandboxes]

    async def end(self) -> None:
        if self.boxes:
            await self.random.choice(self.boxes).end()

    async def vanish(self) -> None:
        if self.boxes:
            made = self.served.backend.made[self.random.choice(self.boxes).id]
            if not made.lost.done():
                made.lost.set_result("killed")


@pytest.mark.parametrize("seed", [0, 1, 105, 121])
async def test_nothing_is_left_of_any_history(tmp_path: Path, seed: int) -> None:
    async with serve_sandboxes(tmp_path, places=_PLACES, max_waiting=4) as served:
        scenario = Scenario(served, seed)
        await scenario.run()
        async with asyncio.timeout(TIMEOUT):
            while scenario.calls:
                served.pass_time(1)  # those that wait for a place of a sandbox nobody ends
                await asyncio.wait(set(scenario.calls), timeout=0.05)
        assert len({box.id for box in scenario.boxes}) == len(scenario.boxes)
        served.backend.faults.clear()

        def is_empty() -> bool:
            # All own leases run out: also of what nobody knows of, and of what only starts now.
            served.pass_time(40)
            return not served.backend.left and not served.taken

        await until(is_empty)
        for box in scenario.boxes:
            with pytest.raises(MeshError) as refused:
                await box.exec("true")
            assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND
        assert not served.waiting
